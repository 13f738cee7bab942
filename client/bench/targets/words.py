"""How token ids become a prompt and an answer becomes token ids."""

import string
from collections.abc import Sequence
from itertools import product
from typing import Any, Literal

from autellix.client.bench.targets.events import Completion
from autellix.client.bench.texts import VOCABULARY

Prompts = Literal["tokens", "text"]
FIRST_PIECE = 1_000_000
"""The id of the first piece of an answer: above those of any vocabulary."""


class TokenIds:
    """Prompts and answers are token ids, as vLLM takes and gives them."""

    def request(self, prompt: Sequence[int]) -> dict[str, Any]:
        """Return the fields of a request that has this prompt."""
        return {"prompt": prompt, "return_token_ids": True}  # no password  # nosec B105

    def tokens(self, completion: Completion) -> list[int]:
        """Return the answer's token ids."""
        return completion.token_ids


class Words:
    """Prompts are texts, for servers that take no ids: each id of the vocabulary stands for a word of its own.

    Each piece of an answer gets an id, too, under which a later prompt repeats it letter by letter. How many tokens a
    word is, is the server's affair; it counts them.
    """

    def __init__(self) -> None:
        words = (f" {''.join(letters)}" for letters in product(string.ascii_lowercase, repeat=2))
        self._texts = dict(zip(VOCABULARY, words, strict=False))
        self._ids: dict[str, int] = {}

    def request(self, prompt: Sequence[int]) -> dict[str, Any]:
        """Return the fields of a request that has this prompt."""
        return {"prompt": "".join(self._texts[number] for number in prompt)}

    def tokens(self, completion: Completion) -> list[int]:
        """Return an id for each piece of the answer's text."""
        return [self._id_of(piece) for piece in completion.pieces]

    def _id_of(self, piece: str) -> int:
        number = self._ids.setdefault(piece, FIRST_PIECE + len(self._ids))
        self._texts[number] = piece
        return number


Codec = TokenIds | Words
CODECS: dict[Prompts, type[Codec]] = {"tokens": TokenIds, "text": Words}
