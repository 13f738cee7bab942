"""Prints a line for each finished call, with nats-py and msgpack alone: what any language's NATS client can do."""

import asyncio
import os
import sys

import msgpack
import nats

SUBJECT = "autellix.events.call.finished"


async def give_up(error: Exception) -> None:
    """End with the first error of the connection, where nats-py would try again."""
    sys.exit(f"NATS: {error}")


async def main() -> None:
    """Listen until interrupted."""
    url = os.environ.get("AUTELLIX_NATS_URL", "nats://127.0.0.1:4222")
    client = await nats.connect(url, error_cb=give_up, allow_reconnect=False)
    finished = await client.subscribe(SUBJECT)
    await client.flush()  # from here on nothing is missed
    print(f"listening to {SUBJECT}", flush=True)
    async for message in finished.messages:
        call = msgpack.unpackb(message.data)
        engine, service, wait = call["engine_id"], call["service_ms"], call["wait_ms"]
        print(f"{call['call_id']} on {engine}: served {service:.0f} ms, waited {wait:.0f} ms", flush=True)


if __name__ == "__main__":
    asyncio.run(main())
