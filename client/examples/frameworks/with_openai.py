"""OpenAI's SDK: a chat with a tool, a streamed answer, and a response."""

import json
import os

from openai import OpenAI

MODEL = os.environ["AUTELLIX_MODEL"]
WEATHER = {
    "type": "function",
    "function": {
        "name": "weather",
        "strict": True,
        "description": "Tell the weather of a city.",
        "parameters": {
            "type": "object",
            "properties": {"city": {"type": "string", "enum": ["Paris", "Rome"]}},
            "required": ["city"],
            "additionalProperties": False,
        },
    },
}


def weather(city: str) -> str:
    """Return the weather of a city."""
    return f"It is sunny in {city}."


def main() -> None:
    """Ask for the weather, have it told, and talk about it."""
    client = OpenAI()
    turns = [{"role": "user", "content": "How is the weather in Paris?"}]
    asked = client.chat.completions.create(
        model=MODEL,
        messages=turns,
        tools=[WEATHER],
        tool_choice="required",
        max_tokens=128,
        temperature=0,
        frequency_penalty=1,  # small models repeat themselves
    )
    message = asked.choices[0].message
    call = message.tool_calls[0]
    told = weather(**json.loads(call.function.arguments))
    print("tool:", told)
    turns += [
        {"role": "assistant", "tool_calls": [call.model_dump()], "content": message.content or ""},
        {"role": "tool", "tool_call_id": call.id, "content": told},
    ]
    stream = client.chat.completions.create(model=MODEL, messages=turns, max_tokens=24, stream=True)
    print("stream:", "".join(chunk.choices[0].delta.content or "" for chunk in stream if chunk.choices))
    response = client.responses.create(model=MODEL, input="Name a city.", max_output_tokens=12)
    print("response:", response.output_text)


if __name__ == "__main__":
    main()
