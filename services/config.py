"""The settings of every service, from one `autellix.toml`.

A table a service; unknown keys are refused, since a misspelt key that is silently ignored costs a night. Single values
can be set on the command line with `--set table.key=value`.
"""

import re
import tomllib
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, Final, Literal

import msgspec
from msgspec import Meta

Port = Annotated[int, Meta(ge=0, le=65535)]
Positive = Annotated[float, Meta(gt=0, le=1e9)]
Count = Annotated[int, Meta(ge=1, le=2**40)]
Name = Annotated[str, Meta(pattern=r"^[A-Za-z0-9_-]{1,64}\Z")]
"""What may stand in a subject: see `subjects.token`."""


class Settings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What every table is: frozen, and strict about its keys."""


class NatsSettings(Settings, frozen=True, kw_only=True):
    """`[nats]`."""

    url: str = "nats://127.0.0.1:4222"
    nkeys: str = ""
    """The folder of nkey seeds that `autellix access nats` wrote, each service's its own; empty: none is asked for."""
    ca: str = ""
    """Certificates (PEM) that vouch for the server; empty: those that the system trusts, where the URL is `tls://`."""
    certificate: str = ""
    """This service's certificate (PEM), where the server asks for one."""
    certificate_key: str = ""
    """The key (PEM) of that certificate."""


class LogSettings(Settings, frozen=True, kw_only=True):
    """`[log]`."""

    level: Literal["debug", "info", "warning", "error"] = "info"


class SessionManagerSettings(Settings, frozen=True, kw_only=True):
    """`[session_manager]`."""

    ttl_s: Positive = 600.0
    """Idle time after which a program expires."""
    ttl_max_s: Positive = 86_400.0
    secret: str = ""
    """Key that ids of client-named sessions are derived from; empty: one is made once, and kept by JetStream."""
    programs_max: Count = 100_000
    """Live programs; beyond it a start is refused with status 503."""
    program_calls_max: Count = 4096
    """Calls that one program may have open; beyond it a call is refused with status 429."""
    tenant_programs_max: Count = 20_000
    """Live programs of one tenant; beyond it a start is refused with status 429."""
    tenant_calls_max: Count = 4096
    """Calls that one tenant may have open; beyond it a call is refused with status 429."""
    calls_max: Count = 100_000
    """Calls that all may have open; beyond it a call is refused with status 503."""
    body_bytes_max: Count = 4 * 2**20
    """Bytes of a request's JSON text; beyond it the call is refused with status 413."""


class ProcessTableSettings(Settings, frozen=True, kw_only=True):
    """`[process_table]`."""

    ended_kept: Count = 1000
    """Ended programs that stay visible; the oldest go first."""
    events_max_bytes: Count = 256 * 2**20
    """Size of the event stream kept by JetStream."""
    events_max_age_s: Positive = 86_400.0


class LoadBalancerSettings(Settings, frozen=True, kw_only=True):
    """`[load_balancer]`."""

    policy: Literal["home", "autellix", "least_used", "prefix_tree", "round_robin"] = "home"
    """`home` is ours (ADR 8), `autellix` paper Algorithm 2, `prefix_tree` Preble's rule (arXiv 2407.00023)."""
    short_prompt_tokens: Count = 2048
    """With `autellix`: prompts up to this length go to the least used engine (paper section 4.3)."""
    move_held: bool = True
    """With `home` and `autellix`: whether a program that its engine holds may go to another, where nothing waits."""
    prefix_tree_tokens: Count = 400_000
    """What `home` and `prefix_tree` take an engine's KV cache to hold, if it came up before the balancer did."""
    engine_silence_s: Positive = 5.0
    """Without a heartbeat for this long an engine leaves the rotation."""
    engine_standstill_s: Positive = 15.0
    """Without a step for this long, though it has calls, an engine leaves the rotation."""


class EngineWorkerSettings(Settings, frozen=True, kw_only=True):
    """`[engine_worker]`."""

    engine_id: Name = "engine-0"
    model: str = "smollm2-135m-instruct"
    """`smollm2-135m-instruct`, `tiny` (random weights), or anything vLLM loads by that name."""
    backend: Literal["vllm", "simulated"] = "vllm"
    """`vllm`, or `simulated`: answers at once, for load tests of the pipeline."""
    simulated_step_ms: Annotated[float, Meta(ge=0, le=1e6)] = 0.0
    """With `simulated`: how long a token takes."""
    policy: Literal["fcfs", "mlfq", "plas", "atlas", "gittins", "auto"] = "auto"
    gate: Literal["off", "fair", "plain"] | None = None
    """How programs are held while their caches do not fit together; absent: as goes with the policy."""
    queues: Annotated[int, Meta(ge=1, le=64)] = 12
    """Queues of the ladder, to begin with."""
    first_quantum_ms: Annotated[float, Meta(ge=0.001, le=1e9)] = 100.0
    """Attained service up to which a call is in the best queue, to begin with; each next bound is twice as high."""
    fit_ladder: bool = True
    """Fit both ends of the ladder to the calls and programs that the engine sees."""
    beta: Positive = 8.0
    """Waited time over attained service at which a call is promoted (paper section 4.2.2)."""
    policy_interval_steps: Count = 1
    """Engine steps between two evaluations of the policy (paper section 4.2.3)."""
    slots: Count = 16
    """Calls in the running batch: vLLM's `max_num_seqs`."""
    heartbeat_s: Positive = 1.0
    drain_s: Positive = 30.0
    """How long calls may finish after SIGTERM; below systemd's TimeoutStopSec."""
    kv_cache_gib: Count = 1
    """KV cache on a CPU machine; on a GPU vLLM measures what is free."""
    max_model_len: Count | None = None
    vllm_args: list[str] = msgspec.field(default_factory=list)
    """Further arguments, as `vllm serve` takes them."""
    allow_untested_vllm: bool = False
    """Start with a version of vLLM that Autellix was not tested with."""


class DurableCallsSettings(Settings, frozen=True, kw_only=True):
    """`[durable_calls]`."""

    concurrency: Annotated[int, Meta(ge=1, le=4096)] = 64
    """Calls that one instance has in the pipeline at once; the others wait in the queue."""
    tries_s: Positive = 14_400.0
    """For how long from its submission a call is tried again that was lost or refused for now."""
    attempt_s: Positive = 3600.0
    """How long one try may take before it counts as lost."""
    accept_s: Positive = 10.0
    """How long the pipeline may take to accept a try."""
    heartbeat_s: Annotated[float, Meta(ge=0.1, le=3600)] = 10.0
    """How often an instance says that it still has a call; if it misses three, the call is given to another."""
    results_kept_s: Positive = 86_400.0
    """How long a result can be asked for."""
    results_max_bytes: Count = 512 * 2**20
    """Size of what JetStream keeps of results; when three quarters are full, new calls are refused with 503."""
    queue_max_bytes: Count = 256 * 2**20
    """Size of the queue that JetStream keeps; when it is full, new calls are refused with 503."""


class HttpSettings(Settings, frozen=True, kw_only=True):
    """Where a service answers HTTP."""

    host: str = "127.0.0.1"
    port: Port


class MetricsSettings(HttpSettings, frozen=True, kw_only=True):
    """`[metrics]`."""

    port: Port = 9464


class GatewaySettings(HttpSettings, frozen=True, kw_only=True):
    """`[gateway]`."""

    port: Port = 8000
    api_keys: str = ""
    """A file of API keys, made by `autellix access key`; empty: everybody may ask, and there are no tenants."""
    body_bytes_max: Count = 4 * 2**20
    heartbeat_s: Positive = 10.0
    """Silence on an event stream after which a comment line is sent, so that proxies do not cut it."""
    first_frame_s: Positive = 10.0
    """How long the pipeline may take to accept a call before the answer is 503."""
    drain_s: Positive = 25.0
    """How long calls may finish after SIGTERM before they end with an error; below systemd's TimeoutStopSec."""


class Config(Settings, frozen=True, kw_only=True):
    """All of `autellix.toml`."""

    nats: NatsSettings = NatsSettings()
    log: LogSettings = LogSettings()
    session_manager: SessionManagerSettings = SessionManagerSettings()
    process_table: ProcessTableSettings = ProcessTableSettings()
    load_balancer: LoadBalancerSettings = LoadBalancerSettings()
    engine_worker: EngineWorkerSettings = EngineWorkerSettings()
    durable_calls: DurableCallsSettings = DurableCallsSettings()
    metrics: MetricsSettings = MetricsSettings()
    gateway: GatewaySettings = GatewaySettings()


TEXTS: Final = frozenset(
    f"{table.name}.{setting.name}"
    for table in msgspec.structs.fields(Config)
    for setting in msgspec.structs.fields(table.type)
    if setting.type in (str, Name)
)
"""The settings that hold any text: a value for one that reads as a number is text all the same."""


class StartError(Exception):
    """A service cannot start as it is set up; the text says why."""


class ConfigError(StartError, ValueError):
    """The configuration cannot be used; the text says where."""


def load(path: Path | None, overrides: Sequence[str] = ()) -> Config:
    """Return the settings of the file at `path` (none: the defaults) with `table.key=value` overrides applied.

    Raises:
        ConfigError: for a file that is no TOML, an unknown key, or a value of the wrong type or range.
    """
    try:
        tree = tomllib.loads(path.read_text()) if path else {}
        for override in overrides:
            _apply(tree, override)
        return msgspec.convert(tree, Config)
    except ConfigError:
        raise
    except msgspec.ValidationError as error:
        raise ConfigError(_sentence(str(error))) from error
    except (OSError, ValueError, RecursionError) as error:  # tomllib says the last two of numbers and lists without end
        raise ConfigError(f"{path}: {error}" if path else str(error)) from error


_INVALID = re.compile(r"(?P<what>.*?)(?: - at `\$\.?(?P<where>.*)`)?", re.DOTALL)
_UNKNOWN = re.compile(r"Object contains unknown field `(?P<key>.*)`", re.DOTALL)


def _sentence(text: str) -> str:
    """Return msgspec's words for what is wrong in the words of the file."""
    invalid = _INVALID.fullmatch(text)
    what, where = (invalid["what"], invalid["where"]) if invalid else (text, None)
    unknown = _UNKNOWN.fullmatch(what)
    if unknown:
        return f"unknown setting {where}.{unknown['key']}" if where else f"unknown table {unknown['key']}"
    return f"{where}: {what}" if where else what


def _apply(tree: dict[str, Any], override: str) -> None:
    """Set one value in the tree."""
    name, equals, text = override.partition("=")
    table, dot, key = name.partition(".")
    if not (equals and dot):
        raise ConfigError(f"expected table.key=value, got {override!r}")
    settings = tree.setdefault(table, {})
    if not isinstance(settings, dict):
        raise ConfigError(f"{table} is no table")
    settings[key] = _value(name, text)


def _value(name: str, text: str) -> Any:
    """Return the value of a setting given as text, which needs no quotes where it is meant as text."""
    try:
        value = tomllib.loads(f"v = {text}")["v"]
    except (ValueError, RecursionError):
        return text
    return value if isinstance(value, str) or name not in TEXTS else text
