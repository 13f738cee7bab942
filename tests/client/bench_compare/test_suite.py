"""Suites and systems are read from TOML, and every mistake is told by file and key."""

from pathlib import Path

import pytest

from autellix.client.bench.load import Load, Scale, programs_of
from autellix.client.bench.settings import SettingsError
from autellix.client.bench.suite import narrowed, read_suite
from autellix.client.bench.systems import Shape, System, read_systems
from tests.client.bench_compare.conftest import suite_of


def test_a_suite_has_what_its_file_says(suite_file: Path) -> None:
    """Systems come in the order of the suite, and results go to a folder of the suite's name."""
    opened = read_suite(suite_file)

    assert {"ref": System(url="http://ref"), "new": System(url="http://ref", kind="gateway")} == opened.systems
    assert suite_file.parent / "results/small" == opened.results
    assert suite_file.parent == opened.here


def test_loads_of_a_workload() -> None:
    """A share is a rate, programs at a time a closed loop, at once a crowd; what an engine cannot hold is left out."""
    workloads = [
        {"name": "few", "workload": "bfcl", "shares": [1.0, 0.5], "scale": {"prompts": 8.0}, "programs": 5},
        {"name": "lats", "live_programs": [8], "shape": {"max_model_len": 1024}},
        {"name": "crowd", "workload": "bfcl", "at_once": [100, 50], "programs": 5},
    ]
    suite = suite_of(workloads=workloads)
    few, lats, crowd = suite.workloads

    scale = Scale(prompts=8.0)
    few_load = Load(
        workload="bfcl", programs=5, seed=3, edition=2, rate_per_s=2.0, max_context_tokens=4096, scale=scale
    )
    lats_load = Load(
        workload="lats", programs=2, seed=3, edition=1, rate_per_s=None, live_programs=8, max_context_tokens=1024
    )
    crowd_load = Load(workload="bfcl", programs=100, seed=3, edition=2, rate_per_s=None, max_context_tokens=4096)
    assert few_load == suite.load(few, 1.0, 3, 2.0)
    assert lats_load == suite.load(lats, 8, 3, None)
    assert crowd_load == suite.load(crowd, 100, 3, None)
    assert ["load", "programs at a time", "programs at once"] == [each.unit for each in suite.workloads]


def test_tokens_of_a_program() -> None:
    """The mean over the programs of all seeds, as they are replayed."""
    suite = suite_of(
        workloads=[{"name": "bfcl", "shares": [1.0], "scale": {"prompts": 8.0, "answers": 4.0}}], seeds=[1, 2]
    )
    (workload,) = suite.workloads
    programs = [each.program for seed in (1, 2) for each in programs_of(suite.load(workload, 1.0, seed, 1.0))]
    tokens = [sum(call.output_tokens for call in program.calls) for program in programs]

    assert 2 * suite.programs == len(programs)
    assert pytest.approx(sum(tokens) / len(tokens)) == suite.tokens_per_program(workload)


@pytest.mark.parametrize(
    ("line", "named"),
    [
        ("programs = 0", r"small.toml.programs: Expected `int` >= 1"),
        ("seeds = []", r"small.toml.seeds: Expected `array` of length >= 1"),
        ("colour = 1", r"small.toml: Object contains unknown field `colour`"),
        ('reference = "other"', r"small.toml: reference: 'other' is none of systems"),
        ('systems = ["ref", "old"]', r"small.toml: systems: 'old' is none of ref, new, which .*systems.toml has"),
        ('systems_file = "no.toml"', r"no.toml: .*No such file"),
        ("[[floors]]", r"small.toml.floors\[0\]: Object missing required field `workload`"),
        ('[[workloads]]\nname = "x"', r"small.toml.workloads\[1\]: x: one of shares, live_programs and at_once"),
        ('[[workloads]]\nname = "x"\nshares = [1]\nat_once = [9]', r"workloads\[1\]: x: one of shares, live_programs"),
        ('[[workloads]]\nname = "a/b"\nshares = [1]', r"workloads\[1\].name: Expected `str` matching regex"),
        ('[[workloads]]\nname = "bfcl"\nshares = [1]', r"small.toml: workloads: two of one name"),
        ("= 3", r"small.toml: Invalid"),
    ],
)
def test_mistakes_in_a_suite(suite_file: Path, line: str, named: str) -> None:
    """A key that is unknown, missing or has an unusable value is named, with the file."""
    key = line.partition(" =")[0]
    kept = [old for old in suite_file.read_text().splitlines() if not old.startswith(f"{key} =")]
    place = len(kept) if line.startswith("[[") else 0
    suite_file.write_text("\n".join([*kept[:place], line, *kept[place:]]))

    with pytest.raises(SettingsError, match=named):
        read_suite(suite_file)


def test_some_of_a_suite(suite_file: Path) -> None:
    """Named systems are kept, and always the reference; a name that is not there is told of."""
    opened = read_suite(suite_file)

    assert opened == narrowed(opened, (), ())
    assert ("ref", "new") == narrowed(opened, ("new",), ()).suite.systems
    assert ["ref"] == [*narrowed(opened, ("ref",), ("bfcl",)).systems]
    with pytest.raises(SettingsError, match="--workloads: 'lats' is none of bfcl"):
        narrowed(opened, (), ("lats",))


def test_a_system_is_like_another(systems_file: Path) -> None:
    """It has the other's settings but for its own, and its arguments come after the other's."""
    systems_file.write_text(
        '[systems.a]\ncommand = ["run"]\narguments = ["-x"]\nready = "/up"\n'
        '[systems.b]\nlike = "a"\narguments = ["-y"]\nready = "/on"\n'
    )

    assert System(command=("run",), arguments=("-x", "-y"), ready="/on") == read_systems(systems_file)["b"]


@pytest.mark.parametrize(
    ("table", "named"),
    [
        ('comand = ["run"]', r"systems.a: Object contains unknown field `comand`"),
        ('kind = "grpc"', r"systems.a.kind: Invalid enum value 'grpc'"),
        ('like = "c"', r"systems.a.like: expected one of b, got 'c'"),
        ('like = "a"', r"systems.a.like: expected one of b, got 'a'"),
        ('command = ["{prt}"]', r"systems.a: '\{prt\}' names something else than slots, "),
        ("start_s = 0", r"systems.a.start_s: Expected `float` > 0"),
        ('url = "http://x"\narguments = ["-x"]', r"systems.a: arguments need a command"),
        ("", r"systems.a: without a command, url must be that of a running system"),
        ('url = "http://x"\nkind = "nats"\npriority = "calls"', r"systems.a: priority goes with kind = 'openai'"),
    ],
)
def test_mistakes_in_systems(systems_file: Path, table: str, named: str) -> None:
    """A key that is unknown or has an unusable value is named, with the system."""
    systems_file.write_text(f'[systems.a]\n{table}\n[systems.b]\nurl = "http://b"\n')

    with pytest.raises(SettingsError, match=named):
        read_systems(systems_file)


def test_names_of_systems_are_fit_for_files(systems_file: Path) -> None:
    """A name that no file should have is refused."""
    systems_file.write_text('[systems."../a"]\nurl = "http://a"\n')

    with pytest.raises(SettingsError, match=r"systems\[0\]: Expected `str` matching regex"):
        read_systems(systems_file)


def test_sizes_of_an_engine_are_whole_blocks() -> None:
    """What commands may name of the sizes: the KV cache as tokens and as blocks of 32."""
    values = Shape(kv_tokens=320).values()

    assert (320, 10, 32) == (values["kv_tokens"], values["kv_blocks"], values["block_tokens"])
