"""Asks services on behalf of HTTP clients: one request, one answer or the failure to get one."""

import asyncio
from typing import Any

from autellix.schemas import tenants
from autellix.schemas.base import Message
from autellix.schemas.codec import Decoder, MalformedMessageError, encode
from autellix.schemas.messages import ResultAnswer, SessionAnswer, TableAnswer
from autellix.services.bus import Bus, BusDownError, Delivery
from autellix.services.gateway import failures

_ANSWERS: Decoder[SessionAnswer | TableAnswer | ResultAnswer] = Decoder(SessionAnswer | TableAnswer | ResultAnswer)


class Services:
    """The services on a bus.

    Args:
        bus: Where they listen.
        patience_s: How long an answer may take.
    """

    def __init__(self, bus: Bus, patience_s: float) -> None:
        self._bus = bus
        self._patience_s = patience_s

    async def ask(self, subject: str, message: Message, tenant: str = tenants.NOBODY) -> Any:
        """Return a service's answer to a tenant; a `Failed` when it refuses, or nobody answers."""
        if not self._bus.connected:  # nothing is kept for later: who asks would not know what came of it
            return failures.BUS_DOWN
        answered: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
        inbox, subscription = self._bus.new_inbox(), None

        async def take(delivery: Delivery) -> None:
            if not answered.done():
                answered.set_result(delivery.data)

        try:
            subscription = await self._bus.subscribe(inbox, take)
            await self._bus.publish(tenants.subject_of(tenant, subject), encode(message), reply=inbox)
            async with asyncio.timeout(self._patience_s):
                answer = await answered
            # an empty message is NATS's way to say that nobody listens
            return _ANSWERS.decode(answer) if answer else failures.NO_SERVICE
        except TimeoutError:
            return failures.not_confirmed(self._patience_s)
        except BusDownError:
            return failures.BUS_DOWN
        except MalformedMessageError:
            return failures.BAD_FRAME
        finally:
            if subscription:
                await subscription.unsubscribe()
