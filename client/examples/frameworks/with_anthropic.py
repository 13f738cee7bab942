"""Anthropic's SDK: a message, whole and streamed."""

import os

from anthropic import Anthropic

MODEL = os.environ["AUTELLIX_MODEL"]


def main() -> None:
    """Say hello twice."""
    client = Anthropic()
    turns = [{"role": "user", "content": "Say hello."}]
    message = client.messages.create(model=MODEL, messages=turns, max_tokens=16)
    print("message:", "".join(block.text for block in message.content if block.type == "text"))
    with client.messages.stream(model=MODEL, messages=turns, max_tokens=16) as stream:
        print("stream:", "".join(stream.text_stream))


if __name__ == "__main__":
    main()
