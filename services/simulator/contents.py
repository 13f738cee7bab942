"""What prompts and answers consist of, as far as prefix caches care: a key for each block of tokens.

Two blocks have the same key exactly when they, and everything before them, are the same text. Each arrival of a program
is new text, also of one that came before, except for the system prompt. So that whoever reads a request finds the same
prefixes in it, the text of a block is its key.
"""

import itertools
from array import array
from typing import NamedTuple

from autellix.schemas.traces.records import TraceCall, TraceProgram

Keys = list[int]
KEY_CHARACTERS = 16
"""A key in hexadecimal digits."""
FILLING = "."


class CallContent(NamedTuple):
    """What one call reads and writes."""

    prompt_tokens: int
    output_tokens: int
    keys: Keys
    """One for each full block of prompt and output."""

    def prompt_text(self, block_tokens: int) -> str:
        """Return the prompt: each full block is its key, filled up to a character a token where tokens are left."""
        keys = array("Q", self.keys[: self.prompt_tokens // block_tokens])
        blocks = keys.tobytes().hex(" ", keys.itemsize).replace(" ", FILLING * (block_tokens - KEY_CHARACTERS))
        return blocks.ljust(self.prompt_tokens, FILLING)


ContentStore = dict[str, CallContent]
"""Brings the contents of calls past the pipeline, which carries the text of the prompt, to the engine."""


class Contents:
    """Gives blocks their keys.

    System prompts are the same in programs of one trace and prefix group when they are equally long.
    """

    def __init__(self, block_tokens: int) -> None:
        self._block_tokens = block_tokens
        self._fresh = itertools.count(1)
        self._system: dict[tuple[str, str, int], Keys] = {}

    def of_program(self, trace: str, program: TraceProgram) -> dict[int, CallContent]:
        """Return the content of each call of a program that arrives, by the call's id."""
        contents: dict[int, CallContent] = {}
        prompts: dict[int, Keys] = {}
        for call in program.calls:
            if call.group in prompts:
                prompt = prompts[call.group]
            else:
                system = self._system_keys((trace, program.prefix_group, call.system_tokens))
                source = contents[call.source].keys if call.source is not None else []
                prompt = self._prompt_keys(call, system, source)
                if call.group is not None:
                    prompts[call.group] = prompt
            keys = self._extended(prompt, call.context_tokens)
            contents[call.id] = CallContent(call.prompt_tokens, call.output_tokens, keys)
        return contents

    def _system_keys(self, known_as: tuple[str, str, int]) -> Keys:
        if known_as not in self._system:
            self._system[known_as] = self._extended([], known_as[-1])
        return self._system[known_as]

    def _prompt_keys(self, call: TraceCall, system: Keys, source: Keys) -> Keys:
        """Return the keys of a prompt that begins as its source does or as the system prompt, whichever is longer."""
        shared = source[: call.shared_prefix_tokens // self._block_tokens]
        return self._extended(max(shared, system, key=len), call.prompt_tokens)

    def _extended(self, keys: Keys, tokens: int) -> Keys:
        """Return `keys` continued with new text up to `tokens`."""
        return [*keys, *itertools.islice(self._fresh, tokens // self._block_tokens - len(keys))]
