"""What happened, as JetStream keeps it: the events of one program."""

from contextlib import suppress
from datetime import UTC, datetime

import nats.errors
from nats.js.api import AckPolicy, ConsumerConfig, DeliverPolicy
from nats.js.errors import NotFoundError

from autellix.client.connection import Connection
from autellix.client.errors import failure
from autellix.schemas import subjects
from autellix.schemas.codec import EVENTS, MalformedMessageError
from autellix.schemas.ids import ProgramId
from autellix.schemas.messages import Event

NEXT_S = 5.0
"""How long events that are known to be there may take to come."""
BATCH = 500
EARLIER_MS = 1000.0
"""How much before a program's start its first event may have been kept: clocks differ."""


async def events_of(connection: Connection, program_id: ProgramId, since_ms: float) -> list[Event]:
    """Return the events of a program that are still kept, in the order in which they came.

    Args:
        connection: To a NATS server with JetStream.
        program_id: Whose.
        since_ms: When the program began, by the wall clock.

    Raises:
        CallFailedError: when no events are kept, or they do not come.
    """
    since = datetime.fromtimestamp(max(0.0, since_ms - EARLIER_MS) / 1000, UTC)
    config = ConsumerConfig(deliver_policy=DeliverPolicy.BY_START_TIME, opt_start_time=since, ack_policy=AckPolicy.NONE)
    found: list[Event] = []
    try:
        pulled = await connection.jetstream().pull_subscribe(
            "autellix.events.>", stream=subjects.EVENT_STREAM, config=config
        )
        left = (await pulled.consumer_info()).num_pending or 0
        while left > 0:
            messages = await pulled.fetch(min(left, BATCH), timeout=NEXT_S)
            left -= len(messages)
            for message in messages:
                with suppress(MalformedMessageError):  # of another version
                    event = EVENTS.decode(message.data)
                    if getattr(event, "program_id", None) == program_id:
                        found.append(event)
        await pulled.unsubscribe()
    except NotFoundError as error:
        raise failure(503, "No events are kept: is the process table up?", "no_events") from error
    except nats.errors.Error as error:
        reason = str(error) or type(error).__name__
        raise failure(503, f"The events that are kept cannot be read: {reason}", "no_events") from error
    return found
