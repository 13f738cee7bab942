"""What a whole Autellix on one machine consists of: which processes, with which arguments."""

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

SERVICES = (
    "session-manager",
    "process-table",
    "load-balancer",
    "engine-worker",
    "durable-calls",
    "metrics",
    "gateway",
)
"""Every service, in the order of starting."""

POLICIES = ("fcfs", "mlfq", "plas", "atlas", "gittins", "auto")
"""Every scheduling policy that an engine can follow."""


@dataclass(frozen=True, kw_only=True)
class Plan:
    """The settings of one stack; what is None is the services' own default."""

    model: str | None = None
    policy: str | None = None
    engines: int = 1
    port: int = 8000
    """The gateway's; 0: any free one."""
    nats_url: str | None = None
    """A server to use; None: one is started."""
    nats_port: int = 0
    """That of the server that is started; 0: any free one."""
    config: Path | None = None
    overrides: tuple[str, ...] = ()
    """More settings, each as `table.key=value`."""
    log_dir: Path | None = None
    """Where each process writes its log; None: a new temporary folder."""

    def commands(self, nats_url: str, *, port: int, metrics_port: int) -> dict[str, list[str]]:
        """Return the command line of each service process, by the process's name, in the order of starting."""
        chosen = {
            "nats.url": nats_url,
            "gateway.port": port,
            "metrics.port": metrics_port,
            "engine_worker.model": self.model,
            "engine_worker.policy": self.policy,
        }
        settings = [*self.overrides, *(f"{key}={value}" for key, value in chosen.items() if value is not None)]
        shared = ["--config", str(self.config)] if self.config else []
        shared += [part for setting in settings for part in ("--set", setting)]
        engines = [f"engine-{number}" for number in range(self.engines)]
        workers = {engine: ["--set", f"engine_worker.engine_id={engine}"] for engine in engines}
        commands: dict[str, list[str]] = {}
        for service in SERVICES:
            processes = workers if service == "engine-worker" else {service: []}
            commands |= {name: service_command(service, [*shared, *own]) for name, own in processes.items()}
        return commands


def service_command(service: str, arguments: Sequence[str]) -> list[str]:
    """Return the command line that runs one service with this Python."""
    return [sys.executable, "-P", "-m", f"autellix.services.{service.replace('-', '_')}", *arguments]
