"""What the process table subscribes to, the most urgent first."""

from autellix.schemas import subjects
from autellix.schemas.codec import CALL_EVENTS, PROGRAM_EVENTS, Decoder
from autellix.schemas.messages import GetProgram, ListPrograms, SubmittedCall
from autellix.services.core import Listen, asked

GROUP = "process-table"

LISTENS = (
    *(Listen(subject, CALL_EVENTS) for subject in subjects.CALL_ENDS),
    Listen(subjects.CALL_ROUTED_EVENT, CALL_EVENTS),
    Listen(subjects.PROGRAM_EVENTS, PROGRAM_EVENTS),
    Listen(subjects.CALL_SUBMITTED, Decoder(SubmittedCall), GROUP),
    *asked(subjects.PROGRAMS_LIST, Decoder(ListPrograms), GROUP),
    *asked(subjects.PROGRAMS_GET, Decoder(GetProgram), GROUP),
)
