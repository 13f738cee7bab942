"""vLLM's own Prometheus series, as its server would show them."""

from collections.abc import Iterator
from typing import Final

from prometheus_client import CollectorRegistry, Metric, generate_latest

PREFIX: Final = "vllm:"
"""What all of vLLM's series begin with; the others are of the process."""


class OwnSeries:
    """Of all that a registry collects, vLLM's."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._registry = registry

    def collect(self) -> Iterator[Metric]:
        """Yield vLLM's series."""
        return (metric for metric in self._registry.collect() if metric.name.startswith(PREFIX))


def series() -> str:
    """Return vLLM's series in Prometheus's text format."""
    from vllm.v1.metrics.prometheus import get_prometheus_registry

    return generate_latest(OwnSeries(get_prometheus_registry())).decode()
