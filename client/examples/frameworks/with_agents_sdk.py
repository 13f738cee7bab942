"""OpenAI's Agents SDK: an agent with a tool, over the responses API and over chat."""

import asyncio
import os
from typing import Literal

from agents import Agent, ModelSettings, Runner, function_tool, set_default_openai_api, set_tracing_disabled
from pydantic import BaseModel

MODEL = os.environ["AUTELLIX_MODEL"]


class City(BaseModel):
    """What the guide answers."""

    name: Literal["Paris", "Rome"]


@function_tool
def weather() -> str:
    """Tell the weather here."""
    return "It is sunny."


async def main() -> None:
    """Ask about the weather, once by each API."""
    set_tracing_disabled(disabled=True)  # the SDK's own traces go to OpenAI
    settings = ModelSettings(max_tokens=128, temperature=0)
    guide = Agent("guide", instructions="You know cities.", model=MODEL, model_settings=settings, output_type=City)
    print("responses:", (await Runner.run(guide, "Where is the Colosseum?")).final_output.name)
    set_default_openai_api("chat_completions")
    looking = ModelSettings(max_tokens=128, temperature=0, tool_choice="required", frequency_penalty=1)
    forecaster = Agent(
        "forecaster", instructions="You look at the weather.", model=MODEL, model_settings=looking, tools=[weather]
    )
    result = await Runner.run(forecaster, "Is it sunny?", max_turns=4)
    print("tools:", sum(item.type == "tool_call_output_item" for item in result.new_items))
    print("chat:", result.final_output)


if __name__ == "__main__":
    asyncio.run(main())
