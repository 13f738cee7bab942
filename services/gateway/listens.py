"""What the gateway subscribes to."""

from autellix.schemas import subjects
from autellix.schemas.codec import ENGINE_EVENTS
from autellix.services.core import Listen

LISTENS = (Listen(subjects.ENGINE_EVENTS, ENGINE_EVENTS),)
