"""Submits one call and prints its frames as they come, with nats-py and msgpack alone."""

import asyncio
import os
import sys

import msgpack
import nats

PROMPT = "What is the capital of France?"


async def give_up(error: Exception) -> None:
    """End with the first error of the connection, where nats-py would try again."""
    sys.exit(f"NATS: {error}")


async def main(model: str) -> None:
    """Submit a call to `model`."""
    url = os.environ.get("AUTELLIX_NATS_URL", "nats://127.0.0.1:4222")
    client = await nats.connect(url, error_cb=give_up, allow_reconnect=False)
    inbox = client.new_inbox()
    frames = await client.subscribe(inbox)
    await client.flush()  # the server listens for us before anybody answers
    body = {"model": model, "messages": [{"role": "user", "content": PROMPT}], "max_tokens": 16, "stream": True}
    await client.publish("autellix.calls.submit", msgpack.packb({"type": "submit_call", "body": body}), reply=inbox)
    async for message in frames.messages:
        frame = msgpack.unpackb(message.data)
        print(frame, flush=True)
        if frame["type"] in ("finished", "failed"):
            break
    await client.close()


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:] or ["smollm2-135m-instruct"]))
