"""The front end of Autellix: what agent programs import, the `autellix` command, examples and the demo.

async with Program("chat") as program:
    answer = await program.chat([{"role": "user", "content": "Hello"}], max_tokens=32)
    print(answer.text)
"""

from autellix.client.answer import Answer
from autellix.client.call import Patience, Stream
from autellix.client.errors import AutellixError, CallFailedError, UnreachableError
from autellix.client.instrument import instrument
from autellix.client.multi_llm_engine import AsyncMultiLLMEngine
from autellix.client.program import Program

__all__ = [
    "Answer",
    "AsyncMultiLLMEngine",
    "AutellixError",
    "CallFailedError",
    "Patience",
    "Program",
    "Stream",
    "UnreachableError",
    "instrument",
]
