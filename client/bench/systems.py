"""The systems that are compared: how each is started, when it is ready, and how programs reach it.

They are described in TOML, a table `[systems.NAME]` each. In commands and URLs these names in braces stand for values:
`port` (a free one), `logs` (a folder for logs of its own), `here` (the folder of the TOML file), `python` (the one that
runs this), and the sizes of the engine (see `Shape`). A system that is `like` another one has its settings, but for its
own; its `arguments` come after the other's.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from autellix.client.bench.settings import Name, SettingsError, converted, read_toml

BLOCK_TOKENS = 32
"""Tokens of a KV block: the least that vLLM takes on a CPU."""

Tokens = Annotated[int, Meta(ge=BLOCK_TOKENS, multiple_of=BLOCK_TOKENS)]
Seconds = Annotated[float, Meta(gt=0)]


class Shape(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How large the engine of every system is."""

    slots: Annotated[int, Meta(ge=1)] = 8
    """Calls in the running batch."""
    kv_tokens: Tokens = 32_768
    """Of the KV cache; there as `kv_blocks`, too."""
    step_tokens: Tokens = 4_096
    """That one step computes; not below `max_model_len`, or a system without chunked prefill could not run."""
    max_model_len: Tokens = 4_096
    """Of prompt and answer together."""

    def values(self) -> dict[str, int]:
        """Return what commands may name of it."""
        blocks = {"block_tokens": BLOCK_TOKENS, "kv_blocks": self.kv_tokens // BLOCK_TOKENS}
        return msgspec.structs.asdict(self) | blocks


class System(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One system."""

    about: str = ""
    """For people."""
    command: tuple[str, ...] = ()
    """Starts it; none: it is there already, at `url`."""
    arguments: tuple[str, ...] = ()
    """More of the command."""
    environment: dict[str, str] = {}
    """Of the command, beside what this process has."""
    url: str = "http://127.0.0.1:{port}"
    """Where programs reach it."""
    ready: str = "/health"
    """A path that answers 200 once it serves."""
    start_s: Seconds = 600.0
    """How long it may take to start,"""
    stop_s: Seconds = 60.0
    """and to stop, before it is killed."""
    kind: Literal["openai", "gateway", "nats"] = "openai"
    """How programs talk to it: see `targets`."""
    priority: Literal["none", "calls"] = "none"
    """With `openai`: what each call says of its priority; `calls`: how many its program has made before."""

    def __post_init__(self) -> None:
        """Check what goes together.

        Raises:
            ValueError: naming the keys.
        """
        if not self.command and "{" in self.url:
            raise ValueError("without a command, url must be that of a running system")
        if not self.command and self.arguments:
            raise ValueError("arguments need a command")
        if self.priority != "none" and self.kind != "openai":
            raise ValueError(f"priority goes with kind = 'openai', not with {self.kind!r}")
        for text in (*self.command, *self.arguments, self.url):
            filled(text, Shape().values() | {"port": 1, "logs": "", "here": "", "python": ""})


def filled(text: str, values: Mapping[str, object]) -> str:
    """Return a text with values in the place of names in braces.

    Raises:
        ValueError: for an unknown name.
    """
    try:
        return text.format_map(values)
    except (KeyError, IndexError, ValueError) as error:
        raise ValueError(f"{text!r} names something else than {', '.join(values)}") from error


def read_systems(path: Path) -> dict[str, System]:
    """Return the systems of a file, by name, in its order.

    Raises:
        SettingsError: naming file and key, when the file cannot be used.
    """
    tree = read_toml(path)
    tables = tree.pop("systems", {})
    if tree or not isinstance(tables, dict) or not all(isinstance(table, dict) for table in tables.values()):
        raise SettingsError(f"{path}: expected tables [systems.NAME] and nothing else")
    names = converted([*tables], list[Name], f"{path}: systems")
    return {name: converted(_whole(tables, name, path), System, f"{path}: systems.{name}") for name in names}


def _whole(tables: Mapping[str, dict[str, Any]], name: str, path: Path) -> dict[str, Any]:
    """Return a system's settings with those of the one it is like."""
    own = dict(tables[name])
    like = own.pop("like", None)
    if like is None:
        return own
    if like == name or like not in tables or "like" in tables[like]:
        others = ", ".join(other for other, table in tables.items() if "like" not in table)
        raise SettingsError(f"{path}: systems.{name}.like: expected one of {others}, got {like!r}")
    base = tables[like]
    arguments = [*base.get("arguments", []), *own.get("arguments", [])]
    return {**base, **own, "arguments": arguments}
