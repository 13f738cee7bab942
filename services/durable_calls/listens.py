"""What durable calls are told: calls that the session manager has checked, and what clients ask about them."""

from autellix.schemas import subjects
from autellix.schemas.codec import Decoder
from autellix.schemas.messages import CancelCalls, DurableCall, GetResult
from autellix.services.core import Listen, asked

GROUP = "durable-calls"

LISTENS = (
    Listen(subjects.CALL_DURABLE, Decoder(DurableCall), GROUP),
    *asked(subjects.CALLS_RESULT, Decoder(GetResult), GROUP),
    *asked(subjects.CALLS_CANCEL, Decoder(CancelCalls), ""),  # each instance: it may be the one that tries the call
)
