"""What the session manager subscribes to, the most urgent first."""

from autellix.schemas import subjects
from autellix.schemas.codec import CALL_ENDS, CALL_EVENTS, Decoder
from autellix.schemas.messages import CancelCalls, EndSession, ReleasedCall, StartSession, SubmitCall, TouchSession
from autellix.services.core import Listen, asked

GROUP = "session-manager"

LISTENS = (
    *(Listen(subject, CALL_ENDS) for subject in subjects.CALL_ENDS),
    Listen(subjects.CALL_RELEASED, Decoder(ReleasedCall)),
    Listen(subjects.CALL_ROUTED_EVENT, CALL_EVENTS),
    *asked(subjects.SESSIONS_START, Decoder(StartSession), GROUP, brings_work=True),
    *asked(subjects.SESSIONS_TOUCH, Decoder(TouchSession), GROUP),
    *asked(subjects.SESSIONS_END, Decoder(EndSession), GROUP),
    *asked(subjects.CALLS_SUBMIT, Decoder(SubmitCall), GROUP, brings_work=True),
    *asked(subjects.CALLS_CANCEL, Decoder(CancelCalls), GROUP),
)
