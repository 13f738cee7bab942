"""What of earlier prompts an engine can still have in its KV cache, as seen from outside.

A prompt is cut into chunks of equal size; a chunk is known by a digest of the text up to its end, so that two prompts
have as many keys in common as chunks at their beginning. The keys of all prompts are the nodes of a tree; no edge needs
to be kept, since a key stands for its whole path.
"""

from bisect import bisect_left
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from hashlib import blake2b
from typing import NamedTuple

import msgspec

CHUNK_BYTES = 128
"""About two blocks of an engine's cache."""
KEY_BYTES = 8


class _Body(msgspec.Struct):
    """What of a request an engine's cache depends on, as JSON text, in the order in which it comes to stand."""

    model: msgspec.Raw = msgspec.Raw()
    tools: msgspec.Raw = msgspec.Raw()
    messages: msgspec.Raw = msgspec.Raw()
    prompt: msgspec.Raw = msgspec.Raw()


_BODIES = msgspec.json.Decoder(_Body)


class Prompt(NamedTuple):
    """The beginning of a prompt, for comparison with others."""

    keys: Sequence[bytes]
    """One for each full chunk."""
    size: int
    """Bytes of the whole prompt."""

    def is_mostly(self, chunks: int) -> bool:
        """Tell whether so many chunks are more than half of the prompt."""
        return 2 * chunks * CHUNK_BYTES > self.size


def prompt_of(body: bytes) -> Prompt:
    """Return the prompt in a request's JSON text."""
    text = b"".join(msgspec.structs.astuple(_BODIES.decode(body)))
    return Prompt(list(_keys(text)), len(text))


def _keys(text: bytes) -> Iterator[bytes]:
    digest = blake2b(digest_size=KEY_BYTES)
    for end in range(CHUNK_BYTES, len(text) + 1, CHUNK_BYTES):
        digest.update(text[end - CHUNK_BYTES : end])
        yield digest.digest()


class PrefixTree:
    """The prompts that were sent to one engine; what was sent longest ago goes first.

    Args:
        capacity_tokens: What the engine's KV cache holds. No more than that is remembered.
    """

    def __init__(self, capacity_tokens: int) -> None:
        self.capacity_tokens = capacity_tokens
        self._tokens_of: OrderedDict[bytes, int] = OrderedDict()
        """Of each chunk, the one sent longest ago first. With a chunk all before it are here."""
        self._tokens = 0

    def matched(self, prompt: Prompt) -> int:
        """Return how many chunks at the beginning of a prompt are remembered."""
        return bisect_left(prompt.keys, x=True, key=lambda key: key not in self._tokens_of)

    def add(self, prompt: Prompt, prompt_tokens: int) -> None:
        """Remember a prompt that is sent, and forget what has no room beside it."""
        tokens = max(1, round(prompt_tokens * CHUNK_BYTES / max(prompt.size, 1)))
        for key in reversed(prompt.keys):  # an engine, too, gives up the end of a sequence before its beginning
            if key in self._tokens_of:
                self._tokens_of.move_to_end(key)
            else:
                self._tokens_of[key] = tokens
                self._tokens += tokens
        while self._tokens > self.capacity_tokens:
            self._tokens -= self._tokens_of.popitem(last=False)[1]
