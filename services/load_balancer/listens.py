"""What the load balancer subscribes to, the most urgent first."""

from autellix.schemas import subjects
from autellix.schemas.codec import CALL_ENDS, CALL_EVENTS, ENGINE_EVENTS, PROGRAM_ENDS, Decoder
from autellix.schemas.messages import AdmittedCall, ListEngines, ReleasedCall
from autellix.services.core import Listen, asked

GROUP = "load-balancer"

LISTENS = (
    *(Listen(subject, CALL_ENDS) for subject in subjects.CALL_ENDS),
    Listen(subjects.CALL_STARTED_EVENT, CALL_EVENTS),
    Listen(subjects.CALL_ROUTED_EVENT, CALL_EVENTS),
    Listen(subjects.CALL_RELEASED, Decoder(ReleasedCall), GROUP),
    Listen(subjects.ENGINE_EVENTS, ENGINE_EVENTS),
    *(Listen(subject, PROGRAM_ENDS) for subject in subjects.PROGRAM_ENDS),
    Listen(subjects.CALL_ADMITTED, Decoder(AdmittedCall), GROUP),
    *asked(subjects.ENGINES_LIST, Decoder(ListEngines), GROUP),
)
