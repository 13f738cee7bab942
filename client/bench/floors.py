"""What must come out of a suite, and what of it did not. Pure."""

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from autellix.client.bench.comparison import Outcome, outcome, ratios
from autellix.client.bench.ratios import Ratio
from autellix.client.bench.settings import SettingsError
from autellix.client.bench.suite import Floor, Suite


class Missed(NamedTuple):
    """A floor that was not kept."""

    floor: Floor
    found: Ratio | None

    def __str__(self) -> str:
        """Return it as a sentence."""
        floor = self.floor
        asked = f"at least {floor.least:g}" if floor.least is not None else f"at most {floor.most:g}"
        found = "not measured" if self.found is None else str(self.found)
        return f"{floor.workload}: {floor.ratio} of {floor.system} over {floor.over} must be {asked}; it is {found}"


def missed(suite: Suite, found: Mapping[str, Outcome]) -> list[Missed]:
    """Return the floors that were not kept; a bound keeps one only if it does so wherever the true value is.

    Args:
        suite: What has the floors.
        found: What its workloads came to, by name.
    """
    measured = {floor: _ratio(floor, suite, found.get(floor.workload)) for floor in suite.floors}
    return [Missed(floor, ratio) for floor, ratio in measured.items() if ratio is None or not _keeps(floor, ratio)]


def check(suite: Suite) -> None:
    """Refuse floors that nothing measures.

    Raises:
        SettingsError: naming the first.
    """
    for floor in suite.floors:
        workloads = {each.name: each for each in suite.workloads}
        _check("workload", floor.workload, workloads)
        _check("system", floor.system, suite.systems)
        _check("over", floor.over, suite.systems)
        nothing = outcome(workloads[floor.workload], {}, None)
        _check("ratio", floor.ratio, ratios(nothing, suite, floor.system, floor.over))


def _check(key: str, name: str, known: Iterable[str]) -> None:
    if name not in known:
        raise SettingsError(f"floors: {key} = {name!r} is none of {', '.join(known)}")


def _ratio(floor: Floor, suite: Suite, found: Outcome | None) -> Ratio | None:
    return ratios(found, suite, floor.system, floor.over)[floor.ratio] if found else None


def _keeps(floor: Floor, ratio: Ratio) -> bool:
    enough = floor.least is None or (ratio.sign in "=>" and ratio.mean >= floor.least)
    return enough and (floor.most is None or (ratio.sign in "=<" and ratio.mean <= floor.most))
