"""The engines' own series: asked for when somebody scrapes, each given the label `engine`."""

import asyncio
from collections.abc import Iterable, Iterator, Mapping
from typing import Final

import structlog
from prometheus_client import Metric
from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.samples import Sample

from autellix.schemas import subjects
from autellix.schemas.codec import Decoder, MalformedMessageError, encode
from autellix.schemas.ids import EngineId
from autellix.schemas.messages import EngineSeries, GetSeries
from autellix.services.bus import Bus, BusDownError, Delivery

log = structlog.get_logger()

LABEL: Final = "engine"
THEIR_LABEL: Final = "engine_index"
"""What becomes of a label `engine` that a series has by itself: vLLM numbers the parts of a data-parallel engine."""

_SERIES: Decoder[EngineSeries] = Decoder(EngineSeries)


async def ask(bus: Bus, engines: Iterable[EngineId], patience_s: float) -> dict[EngineId, str]:
    """Return the series of those engines that answer in time, in Prometheus's text format."""
    asked, found, heard = set(engines), dict[EngineId, str](), 0
    complete = asyncio.Event()
    if not asked or not bus.connected:
        return found

    async def take(delivery: Delivery) -> None:
        nonlocal heard
        heard += 1
        try:
            answer = _SERIES.decode(delivery.data)
            found[answer.engine_id] = answer.text
        except MalformedMessageError:  # nobody listens, NATS says: it is on its way up or down
            pass
        if heard >= len(asked):
            complete.set()

    inbox = bus.new_inbox()
    subscription = await bus.subscribe(inbox, take)
    try:
        for engine_id in asked:
            await bus.publish(subjects.engine_series(engine_id), encode(GetSeries()), reply=inbox)
        async with asyncio.timeout(patience_s):
            await complete.wait()
    except TimeoutError:
        log.warning("no series", engines=sorted(asked - found.keys()))
    except BusDownError as error:
        log.warning("no series", error=str(error))
    finally:
        await subscription.unsubscribe()
    return found


class EngineSeriesCollector:
    """The series of several engines as one collection: each family once, whichever engines have it."""

    def __init__(self, texts: Mapping[EngineId, str]) -> None:
        self._texts = texts

    def collect(self) -> Iterator[Metric]:
        """Yield every family."""
        families: dict[str, Metric] = {}
        for engine_id, text in sorted(self._texts.items()):
            try:
                for found in text_string_to_metric_families(text):
                    family = families.setdefault(found.name, Metric(found.name, found.documentation, found.type))
                    family.samples += [_labelled(sample, engine_id) for sample in found.samples]
            except ValueError as error:
                log.warning("unreadable series", engine_id=engine_id, error=str(error))
        yield from families.values()


def _labelled(sample: Sample, engine_id: EngineId) -> Sample:
    labels = {THEIR_LABEL if name == LABEL else name: value for name, value in sample.labels.items()}
    return sample._replace(labels={**labels, LABEL: engine_id})
