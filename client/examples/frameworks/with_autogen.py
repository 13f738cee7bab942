"""AutoGen: two agents in turn, a writer and a critic."""

import asyncio
import os

from autogen_agentchat.agents import AssistantAgent
from autogen_agentchat.conditions import MaxMessageTermination
from autogen_agentchat.teams import RoundRobinGroupChat
from autogen_core.models import ModelFamily
from autogen_ext.models.openai import OpenAIChatCompletionClient

ABLE = {
    "vision": False,
    "function_calling": True,
    "json_output": True,
    "structured_output": True,
    "family": ModelFamily.UNKNOWN,
}


async def main() -> None:
    """Have a slogan written and criticised."""
    client = OpenAIChatCompletionClient(model=os.environ["AUTELLIX_MODEL"], model_info=ABLE, max_tokens=24)
    writer = AssistantAgent("writer", client, system_message="You write slogans.")
    critic = AssistantAgent("critic", client, system_message="You criticise slogans in one sentence.")
    team = RoundRobinGroupChat([writer, critic], termination_condition=MaxMessageTermination(5))
    result = await team.run(task="Write a slogan for a bakery.")
    for message in result.messages:
        print(f"{message.source}: {message.to_text()}")
    await client.close()


if __name__ == "__main__":
    asyncio.run(main())
