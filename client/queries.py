"""What a client asks the services about themselves."""

from contextlib import suppress

from autellix.client.connection import Connection
from autellix.client.errors import CallFailedError, failure
from autellix.schemas import subjects
from autellix.schemas.events import EngineLoad
from autellix.schemas.frames import CallResult
from autellix.schemas.ids import EngineId, ProgramId
from autellix.schemas.requests import (
    ControlEngine,
    EndSession,
    GetProgram,
    GetResult,
    ListEngines,
    ListPrograms,
    SessionEnded,
)
from autellix.schemas.table import EngineList, ProgramList, ProgramRecord

PREFIX_MIN = 4
"""Characters of an id, as `autellix ps` shows its beginning, that may stand for it."""


async def list_programs(
    connection: Connection, *, include_ended: bool = True, with_threads: bool = False
) -> ProgramList:
    """Return the process table, or of it the programs that run; with all their threads it may be too long.

    Raises:
        CallFailedError: when no service answers.
    """
    return await connection.request(
        subjects.PROGRAMS_LIST, ListPrograms(include_ended=include_ended, with_threads=with_threads), ProgramList
    )


async def get_program(connection: Connection, name: str) -> ProgramRecord:
    """Return one program, by its id, the beginning of it, its name or its label; of several of one name the last.

    Raises:
        CallFailedError: when there is none, or no service answers.
    """
    try:
        return await connection.request(subjects.PROGRAMS_GET, GetProgram(program_id=ProgramId(name)), ProgramRecord)
    except CallFailedError as error:
        if error.status != 404:
            raise
        programs = (await list_programs(connection)).programs
        begin_so = [each for each in programs if len(name) >= PREFIX_MIN and each.program_id.startswith(name)]
        labelled = [each for each in programs if each.name == name]
        if len(begin_so) != 1 and not labelled:
            raise
        return max(labelled or begin_so, key=lambda each: each.started_at_ms)


async def end_program(connection: Connection, name: str) -> SessionEnded:
    """End a program, named as in `get_program`; to end one that is over, or never was, is no error.

    Raises:
        CallFailedError: when no service answers.
    """
    program_id = ProgramId(name)
    with suppress(CallFailedError):
        program_id = (await get_program(connection, name)).program_id
    return await connection.request(subjects.SESSIONS_END, EndSession(program_id=program_id), SessionEnded)


async def get_result(connection: Connection, call_id: str) -> CallResult:
    """Return what became of a durable call.

    Raises:
        CallFailedError: with status 404 when there is none of this id, or its result has expired.
    """
    return await connection.request(subjects.CALLS_RESULT, GetResult(id=call_id), CallResult)


async def list_engines(connection: Connection) -> EngineList:
    """Return the engines in rotation.

    Raises:
        CallFailedError: when no service answers.
    """
    return await connection.request(subjects.ENGINES_LIST, ListEngines(), EngineList)


async def control_engine(connection: Connection, engine_id: EngineId, action: str) -> EngineLoad:
    """Order an engine to `drain` or to `resume`, and return what it then says of itself.

    Raises:
        CallFailedError: when there is no such engine.
    """
    try:
        subject = subjects.engine_control(engine_id)
    except ValueError as error:
        raise failure(404, f"No engine {engine_id[:64]!r}.", "engine_not_found") from error
    try:
        return await connection.request(subject, ControlEngine(action=action), EngineLoad)
    except CallFailedError as error:
        if error.error.code == "no_responders":
            raise failure(404, f"No engine {engine_id!r} is up.", "engine_not_found") from error
        raise


async def first_model(connection: Connection) -> str:
    """Return the first model of the first engine.

    Raises:
        CallFailedError: when no service answers, or no engine is up.
    """
    models = [model for engine in (await list_engines(connection)).engines for model in engine.models]
    if not models:
        raise failure(503, "No engine is up yet.", "no_engine", retry_safe=True)
    return models[0]
