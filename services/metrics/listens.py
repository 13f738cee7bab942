"""What the metrics service subscribes to, causes before effects: what it counts and no more, each costs time."""

from autellix.schemas import subjects
from autellix.schemas.codec import CALL_EVENTS, DURABLE_EVENTS, ENGINE_EVENTS, PROGRAM_EVENTS
from autellix.services.core import Listen

GROUP = "metrics"

LISTENS = (
    Listen(subjects.PROGRAM_EVENTS, PROGRAM_EVENTS),
    Listen(subjects.CALL_SUBMITTED_EVENT, CALL_EVENTS),
    *(Listen(subject, CALL_EVENTS) for subject in subjects.CALL_ENDS),
    Listen(subjects.ENGINE_EVENTS, ENGINE_EVENTS),
    Listen(subjects.DURABLE_EVENTS, DURABLE_EVENTS),
)
