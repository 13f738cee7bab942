"""What the metrics service subscribes to."""

from autellix.schemas import subjects
from autellix.schemas.codec import EVENTS
from autellix.services.core import Listen

LISTENS = (Listen(subjects.EVENTS, EVENTS),)
