"""The core's numbers in the form of Prometheus."""

from collections.abc import Callable, Iterable, Iterator
from itertools import accumulate
from typing import Final

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector

from autellix.services.metrics.core import EngineReport, MetricsCore
from autellix.services.metrics.numbers import Counter, Histogram

ENGINE_GAUGES: Final[tuple[tuple[str, str, Callable[[EngineReport], float]], ...]] = (
    ("autellix_engine_running_calls", "Calls in the engine's running batch.", lambda r: r.load.running),
    ("autellix_engine_waiting_calls", "Calls that wait in the engine.", lambda r: r.load.waiting),
    ("autellix_engine_slots", "Calls that the engine's batch holds.", lambda r: r.load.slots),
    ("autellix_engine_kv_usage_ratio", "Part of the KV cache in use.", lambda r: r.load.kv_usage),
    ("autellix_engine_resident_programs", "Programs whose caches are kept.", lambda r: r.load.programs_resident),
    ("autellix_engine_held_programs", "Programs that wait for room in the KV cache.", lambda r: r.load.programs_held),
    ("autellix_engine_held_tokens", "Room that held programs want beside what is taken.", lambda r: r.load.held_tokens),
    ("autellix_engine_pool_seconds", "Time to compute a full KV cache; 0: unknown.", lambda r: r.load.pool_ms / 1000),
    (
        "autellix_engine_expected_hold_seconds",
        "How long a program that arrives now is likely to be held.",
        lambda r: r.load.expected_wait_ms / 1000,
    ),
)


class Exporter(Collector):
    """Reads the core each time Prometheus asks."""

    def __init__(self, core: MetricsCore, now_ms: Callable[[], float]) -> None:
        self._core = core
        self._now_ms = now_ms

    def collect(self) -> Iterator[Metric]:
        """Yield every metric."""
        yield from self._programs()
        yield from self._calls()
        yield from self._engines()
        yield from self._durable()

    def _programs(self) -> Iterator[Metric]:
        programs = self._core.programs
        yield _counter("autellix_programs_started", "Programs that began.", programs.by_source, label_name="source")
        yield CounterMetricFamily("autellix_programs_ended", "Programs that ended.", programs.ended_count)
        text = "Programs that were idle too long."
        yield CounterMetricFamily("autellix_programs_expired", text, programs.expired_count)
        yield GaugeMetricFamily("autellix_programs_live", "Programs begun and not over.", len(programs.live))
        text = "Time from a program's start to its end."
        yield _histogram("autellix_program_duration_seconds", text, "outcome", programs.duration)
        text = "Time from a program's start to its end over the tokens generated for it."
        yield _histogram("autellix_program_token_latency_seconds", text, "outcome", programs.token_latency)
        text = "What a program's calls waited over what they executed."
        yield _histogram("autellix_program_wait_ratio", text, "outcome", programs.wait_ratio)
        text = "Time in which a program had a call over its critical path; 1: nothing held it up."
        yield _histogram("autellix_program_slowdown_ratio", text, "outcome", programs.slowdown)

    def _calls(self) -> Iterator[Metric]:
        core = self._core
        yield CounterMetricFamily("autellix_calls_submitted", "Calls taken in.", core.calls_submitted)
        yield GaugeMetricFamily("autellix_calls_in_flight", "Calls taken in and not over.", len(core.calls_live))
        yield _counter("autellix_calls_finished", "Calls that were answered.", core.calls_finished)
        yield _counter("autellix_calls_failed", "Calls that ended in an error.", core.calls_failed)
        yield _counter("autellix_calls_cancelled", "Calls that were cancelled.", core.calls_cancelled)
        yield _counter("autellix_prompt_tokens", "Prompt tokens of ended calls.", core.prompt_tokens)
        yield _counter("autellix_cached_tokens", "Prompt tokens found in the KV cache.", core.cached_tokens)
        yield _counter("autellix_output_tokens", "Tokens generated.", core.output_tokens)
        yield _counter("autellix_preemptions", "Times that a call lost its place in the batch.", core.preemptions)
        text = "Duration of the engine steps that a call was part of."
        yield _histogram("autellix_call_service_seconds", text, "engine", core.call_service)
        text = "Time that a call was in the engine and in no step."
        yield _histogram("autellix_call_wait_seconds", text, "engine", core.call_wait)
        text = "Time from a call's arrival to its end."
        yield _histogram("autellix_call_duration_seconds", text, "engine", core.call_duration)

    def _engines(self) -> Iterator[Metric]:
        now_ms, reports = self._now_ms(), self._core.engines.values()
        yield GaugeMetricFamily("autellix_engines_up", "Engines that report.", len(self._core.reporting(now_ms)))
        for name, text, value in ENGINE_GAUGES:
            yield _gauge(name, text, reports, value)
        text = "Time since the engine's last report."
        yield _gauge("autellix_engine_report_age_seconds", text, reports, lambda r: (now_ms - r.heard_at_ms) / 1000)
        steps = CounterMetricFamily("autellix_engine_steps", "Engine steps since its start.", labels=["engine"])
        info = GaugeMetricFamily("autellix_engine_info", "1; the labels tell.", labels=["engine", "policy"])
        for report in reports:
            steps.add_metric([report.load.engine_id], report.load.steps)
            info.add_metric([report.load.engine_id, report.load.policy], 1)
        yield from (steps, info)

    def _durable(self) -> Iterator[Metric]:
        durable = self._core.durable
        now = durable.gauges(self._now_ms())
        text = "Instances that report and can keep durable calls."
        yield GaugeMetricFamily("autellix_durable_calls_up", text, now["up"])
        yield GaugeMetricFamily("autellix_durable_calls_pending", "Durable calls without a result.", now["pending"])
        yield GaugeMetricFamily("autellix_durable_calls_trying", "Of these, those in the pipeline.", now["trying"])
        yield CounterMetricFamily("autellix_durable_tries", "Times that a durable call was tried.", durable.tries)
        text = "Results of durable calls that were kept."
        yield _counter("autellix_durable_results", text, durable.results, label_name="outcome")


def _counter(name: str, text: str, counter: Counter, *, label_name: str = "engine") -> Metric:
    family = CounterMetricFamily(name, text, labels=[label_name])
    for label, value in counter.by_label.items():
        family.add_metric([label], value)
    return family


def _gauge(name: str, text: str, reports: Iterable[EngineReport], value: Callable[[EngineReport], float]) -> Metric:
    family = GaugeMetricFamily(name, text, labels=["engine"])
    for report in reports:
        family.add_metric([report.load.engine_id], value(report))
    return family


def _histogram(name: str, text: str, label_name: str, histogram: Histogram) -> Metric:
    family = HistogramMetricFamily(name, text, labels=[label_name])
    bounds = [*map(str, histogram.bounds), "+Inf"]
    for label, counts in histogram.by_label.items():
        buckets = list(zip(bounds, accumulate(counts), strict=True))
        family.add_metric([label], buckets, histogram.sums[label])
    return family
