"""The dashboard for Grafana and the rules for Prometheus ask for metrics that there are."""

import json
import re
from pathlib import Path
from typing import Any

import yaml  # type: ignore[import-untyped]
from prometheus_client import CollectorRegistry, generate_latest

from autellix.services.metrics.core import MetricsCore
from autellix.services.metrics.exporter import Exporter

OPS = Path(__file__).parents[2] / "ops"
RULES = OPS / "prometheus" / "autellix.rules.yml"
BOARD = OPS / "grafana" / "autellix.json"
SUFFIXES = ("_total", "_bucket", "_sum", "_count")


def exported() -> dict[str, str]:
    """Return the type of each metric that the metrics service has, whether it has values yet or not."""
    registry = CollectorRegistry()
    registry.register(Exporter(MetricsCore(silence_s=5), lambda: 0.0))
    return dict(re.findall(r"^# TYPE (\w+) (\w+)$", generate_latest(registry).decode(), re.MULTILINE))


def asked(text: str) -> set[str]:
    """Return the names of our metrics in an expression."""
    return set(re.findall(r"autellix_\w+", text))


def expressions() -> list[str]:
    """Return every expression of the two files."""
    rules = [rule["expr"] for group in yaml.safe_load(RULES.read_text())["groups"] for rule in group["rules"]]
    board: dict[str, Any] = json.loads(BOARD.read_text())
    panels = [target["expr"] for panel in board["panels"] for target in panel["targets"]]
    return [*rules, *panels, *(variable["query"]["query"] for variable in board["templating"]["list"][1:])]


def test_metrics_are_there() -> None:
    """No expression asks for a metric that is not exported, or as another type than it has."""
    known = exported()
    names = set().union(*map(asked, expressions()))
    for name in names:
        kind = known.get(name) or next(
            (known[name.removesuffix(end)] for end in SUFFIXES if name.removesuffix(end) in known), None
        )
        assert kind, name
        assert (kind == "counter") == name.endswith("_total"), name
        assert (kind == "histogram") == name.endswith(SUFFIXES[1:]), name

    assert len(names) > 20


def test_counters_are_rated() -> None:
    """A counter says something as a rate only."""
    for expression in expressions():
        for name in asked(expression):
            if name.endswith(SUFFIXES):
                assert re.search(rf"rate\({name}\b", expression), expression


def test_panels_do_not_overlap() -> None:
    """Each place of the board has one panel, and every panel a title of its own."""
    panels = json.loads(BOARD.read_text())["panels"]
    places = [
        (panel["gridPos"]["x"] + column, panel["gridPos"]["y"] + row)
        for panel in panels
        for column in range(panel["gridPos"]["w"])
        for row in range(panel["gridPos"]["h"])
    ]

    assert len(set(places)) == len(places)
    assert len({panel["title"] for panel in panels}) == len({panel["id"] for panel in panels}) == len(panels)
