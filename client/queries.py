"""What a client asks the services about themselves."""

from autellix.client.connection import Connection
from autellix.client.errors import failure
from autellix.schemas import subjects
from autellix.schemas.requests import ListEngines, ListPrograms
from autellix.schemas.table import EngineList, ProgramList


async def list_programs(connection: Connection) -> ProgramList:
    """Return the process table.

    Raises:
        CallFailedError: when no service answers.
    """
    return await connection.request(subjects.PROGRAMS_LIST, ListPrograms(), ProgramList)


async def list_engines(connection: Connection) -> EngineList:
    """Return the engines in rotation.

    Raises:
        CallFailedError: when no service answers.
    """
    return await connection.request(subjects.ENGINES_LIST, ListEngines(), EngineList)


async def first_model(connection: Connection) -> str:
    """Return the first model of the first engine.

    Raises:
        CallFailedError: when no service answers, or no engine is up.
    """
    models = [model for engine in (await list_engines(connection)).engines for model in engine.models]
    if not models:
        raise failure(503, "No engine is up yet.", "no_engine", retry_safe=True)
    return models[0]
