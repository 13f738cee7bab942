"""LiteLLM: several calls at once, a streamed one, and one by Anthropic's API."""

import asyncio
import os

import litellm

MODEL = os.environ["AUTELLIX_MODEL"]


async def main() -> None:
    """Ask for three cities at once, then have one described."""
    asked = [{"role": "user", "content": "Name a city."}]
    cities = await asyncio.gather(
        *(litellm.acompletion(f"openai/{MODEL}", messages=asked, max_tokens=12, seed=seed) for seed in range(3))
    )
    print("cities:", len(cities))
    told = [{"role": "user", "content": f"Describe {cities[0].choices[0].message.content}"}]
    stream = await litellm.acompletion(f"openai/{MODEL}", messages=told, max_tokens=24, stream=True)
    print("stream:", "".join([chunk.choices[0].delta.content or "" async for chunk in stream]))
    claude = await litellm.acompletion(f"anthropic/{MODEL}", messages=asked, max_tokens=12)
    print("anthropic:", claude.choices[0].message.content)


if __name__ == "__main__":
    asyncio.run(main())
