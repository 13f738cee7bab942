"""What each user of the bus may say and hear: what its service says and hears, and nothing else.

What a service hears is what it listens to (its `LISTENS`). What it says is listed here, and a test runs everything
under these rules. Who answers may say so in any inbox, and each user hears its own inboxes only.
"""

from collections.abc import Iterable
from typing import Final, NamedTuple

from autellix.schemas import subjects, tenants
from autellix.services.core import Listen
from autellix.services.durable_calls.listens import LISTENS as DURABLE_CALLS
from autellix.services.gateway.listens import LISTENS as GATEWAY
from autellix.services.load_balancer.listens import LISTENS as LOAD_BALANCER
from autellix.services.metrics.listens import LISTENS as METRICS
from autellix.services.process_table.listens import LISTENS as PROCESS_TABLE
from autellix.services.session_manager.listens import LISTENS as SESSION_MANAGER


class User(NamedTuple):
    """One user, beside its own inboxes."""

    says: tuple[str, ...]
    hears: tuple[str, ...]


ASKED: Final = (
    subjects.SESSIONS_START,
    subjects.SESSIONS_TOUCH,
    subjects.SESSIONS_END,
    subjects.CALLS_SUBMIT,
    subjects.CALLS_CANCEL,
    subjects.CALLS_RESULT,
    subjects.PROGRAMS_LIST,
    subjects.PROGRAMS_GET,
    subjects.ENGINES_LIST,
)
"""The public requests that a tenant's agents may make."""
OBSERVED: Final = (subjects.PROGRAM_EVENTS, subjects.CALL_EVENTS)
"""The events that a tenant may hear, of its own programs."""

INBOXES: Final = ("_INBOX.>", "_R_.>")
"""Where answers go; the second is how NATS calls the inboxes of other accounts."""
STATE: Final = "KV_AUTELLIX_STATE"
"""The stream behind the bucket of snapshots."""
QUEUE: Final = "AUTELLIX_DURABLE"
RESULTS: Final = "KV_AUTELLIX_RESULTS"
"""Those of durable calls."""


NO_ANSWER: Final = ("_INBOX.>",)
"""A micro service answers `$SRV` in the inbox of who asks, and so does who answers nothing else."""


def _heard(listens: Iterable[Listen]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(listen.subject for listen in listens))


def _of_engines(what: str) -> str:
    return f"autellix.internal.engines.*.{what}"


def _events(*tags: str) -> tuple[str, ...]:
    """Return the subjects of events of programs and calls: those of all, and those of each tenant."""
    every = tuple(f"autellix.events.{tag}" for tag in tags)
    return (*every, *map(tenants.any_subject_of, every))


def _reads(stream: str) -> tuple[str, ...]:
    """Return what one asks JetStream for to read a stream by consumers of one's own."""
    return (f"$JS.API.STREAM.INFO.{stream}", *_consumes(stream))


def _consumes(stream: str) -> tuple[str, ...]:
    verbs = ("CREATE", "DURABLE.CREATE", "INFO", "DELETE", "MSG.NEXT")
    return (f"$JS.API.CONSUMER.CREATE.{stream}", *(f"$JS.API.CONSUMER.{verb}.{stream}.>" for verb in verbs))


def _remembers(service: str) -> tuple[str, ...]:
    """Return what one asks JetStream for to keep events, and snapshots of one service."""
    made = (f"$JS.API.STREAM.{what}.{subjects.EVENT_STREAM}" for what in ("CREATE", "UPDATE"))
    kept = (f"$JS.API.STREAM.{what}.{STATE}" for what in ("CREATE", "INFO", "PURGE"))
    own = (f"$KV.AUTELLIX_STATE.{service}", f"$KV.AUTELLIX_STATE.{service}.>")
    read = (f"$JS.API.DIRECT.GET.{STATE}.{key}" for key in own)
    return ("$JS.API.INFO", *made, *_reads(subjects.EVENT_STREAM), *kept, *own, *read)


USERS: Final = {
    "session-manager": User(
        says=(
            *INBOXES,
            subjects.CALL_SUBMITTED,
            subjects.CALL_DURABLE,
            subjects.CALL_RELEASED,
            subjects.CALL_CANCEL,
            *_events("program.started", "program.ended", "program.expired"),
            *_events("call.submitted", "call.failed", "call.cancelled"),
            *_remembers("session-manager"),
        ),
        hears=_heard(SESSION_MANAGER),
    ),
    "process-table": User(
        says=(
            *INBOXES,
            subjects.CALL_ADMITTED,
            subjects.PRIORITIES,
            *_events("call.admitted"),
            *_remembers("process-table"),
        ),
        hears=_heard(PROCESS_TABLE),
    ),
    "load-balancer": User(
        says=(
            *INBOXES,
            *(_of_engines(name) for name in ("calls", "release", "forget")),
            *_events("call.routed", "call.failed"),
            "autellix.events.engine.down",
            *_reads(subjects.EVENT_STREAM),
        ),
        hears=_heard(LOAD_BALANCER),
    ),
    "engine-worker": User(
        says=(
            *INBOXES,
            subjects.CALL_RELEASED,
            *_events("call.started", "call.held", "call.preempted", "call.resumed"),
            *_events("call.finished", "call.failed", "call.cancelled"),
            subjects.ENGINE_EVENTS,
        ),
        hears=(
            *(_of_engines(name) for name in ("calls", "release", "forget", "series")),
            "autellix.engines.*.control",
            subjects.CALL_CANCEL,
            subjects.PRIORITIES,
            *subjects.PROGRAM_ENDS,
        ),
    ),
    "durable-calls": User(
        says=(
            *INBOXES,
            *(subjects.CALLS_SUBMIT, subjects.CALLS_CANCEL),
            *map(tenants.any_subject_of, (subjects.CALLS_SUBMIT, subjects.CALLS_CANCEL)),
            subjects.DURABLE_EVENTS,
            *(subjects.CALL_QUEUED, f"$JS.ACK.{QUEUE}.>", "$KV.AUTELLIX_RESULTS.>"),
            *(
                f"$JS.API.STREAM.{what}.{stream}"
                for stream in (QUEUE, RESULTS)
                for what in ("CREATE", "UPDATE", "INFO")
            ),
            f"$JS.API.STREAM.MSG.GET.{RESULTS}",
            *_consumes(QUEUE),
            "$JS.API.INFO",
        ),
        hears=_heard(DURABLE_CALLS),
    ),
    "metrics": User(
        says=(*INBOXES, _of_engines("series"), *_reads(subjects.EVENT_STREAM)),
        hears=(*_heard(METRICS), subjects.METRICS_GET),
    ),
    "gateway": User(
        says=(*ASKED, *map(tenants.any_subject_of, ASKED), subjects.METRICS_GET, *NO_ANSWER),
        hears=(*_heard(GATEWAY), *OBSERVED, *map(tenants.any_subject_of, OBSERVED)),
    ),
    "operator": User(
        says=(*ASKED, subjects.METRICS_GET, "autellix.engines.*.control", "$SRV.>", *_reads(subjects.EVENT_STREAM)),
        hears=("autellix.events.>",),
    ),
}
"""Every user of the account that the services share, by name."""
