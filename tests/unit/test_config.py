"""Settings: a file and single values over it; whatever is wrong is one error that says where."""

import re
from pathlib import Path

import msgspec
import pytest

from autellix.services.command_line import from_command_line
from autellix.services.config import Config, ConfigError, load


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """Return where a configuration file goes."""
    return tmp_path / "autellix.toml"


def test_defaults() -> None:
    """Without a file and overrides there are the defaults."""
    assert load(None) == Config()


def test_file_and_overrides(file: Path) -> None:
    """A single value wins over the file, and the file over the defaults."""
    file.write_text('[engine_worker]\nslots = 2\nbeta = 4\npolicy = "plas"\n')
    worker = load(file, ["engine_worker.slots=3", "engine_worker.vllm_args=['--x', '1']"]).engine_worker

    assert (worker.slots, worker.beta, worker.policy, worker.vllm_args) == (3, 4.0, "plas", ["--x", "1"])
    assert worker.queues == 12


@pytest.mark.parametrize(
    ("override", "expected"),
    [
        ("nats.url=nats://host:4222", "nats://host:4222"),
        ("nats.url='quoted'", "quoted"),
        ("nats.url=a=b", "a=b"),
        ("nats.url=", ""),
        ("nats.url=1", "1"),
        ("nats.url=true", "true"),
    ],
)
def test_text_needs_no_quotes(override: str, expected: str) -> None:
    """A setting that holds text takes it as it stands, also where it reads as a number."""
    assert expected == load(None, [override]).nats.url


@pytest.mark.parametrize(
    ("text", "where"),
    [
        ("[engine_worker]\nslot = 1\n", "slot"),
        ("[engine]\n", "engine"),
        ("[engine_worker]\nslots = 0\n", "engine_worker.slots"),
        ("[engine_worker]\nslots = '1'\n", "engine_worker.slots"),
        ("[engine_worker]\nbeta = nan\n", "engine_worker.beta"),
        ("[engine_worker]\npolicy = 'best'\n", "engine_worker.policy"),
        ("[engine_worker]\nengine_id = 'a.b'\n", "engine_worker.engine_id"),
        ("[engine_worker]\nengine_id = 'a\\n'\n", "engine_worker.engine_id"),
        ("[gateway]\nport = 65536\n", "gateway.port"),
        ("nats = 3\n", "nats"),
        ("not toml", "line 1"),
        ("\udcff", "decode"),
    ],
)
def test_bad_file(file: Path, text: str, where: str) -> None:
    """An unknown key, a value of the wrong type or range, and text that is no TOML are errors that name the place."""
    file.write_text(text, errors="surrogateescape")

    with pytest.raises(ConfigError, match=re.escape(where)):
        load(file)


def test_no_file(file: Path) -> None:
    """A file that is not there is an error that names it."""
    with pytest.raises(ConfigError, match=re.escape(str(file))):
        load(file)


@pytest.mark.parametrize(
    "override", ["x", "nats", "nats.url", "=", "nats=1", "nats.url.x=1", "nats.ur=1", "log.level=loud"]
)
def test_bad_override(override: str) -> None:
    """An override that sets nothing known is an error."""
    with pytest.raises(ConfigError, match=r".+"):
        load(None, [override])


def test_override_of_no_table(file: Path) -> None:
    """A value cannot be set inside what the file says is no table."""
    file.write_text("nats = 3\n")

    with pytest.raises(ConfigError, match="nats is no table"):
        load(file, ["nats.url=x"])


def test_engine_named_by_a_number() -> None:
    """An engine may be called `1`; a value for a number stays a number."""
    worker = load(None, ["engine_worker.engine_id=1", "engine_worker.slots=1"]).engine_worker

    assert (worker.engine_id, worker.slots) == ("1", 1)


def test_settings_do_not_change() -> None:
    """Settings are what they were when the process began."""
    with pytest.raises(AttributeError):
        load(None).nats.url = "x"  # type: ignore[misc]
    assert load(None) == msgspec.convert({}, Config)


def test_command_line(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A service takes its file from the command line or the environment, and single values from the former."""
    file.write_text("[gateway]\nport = 1234\n")
    monkeypatch.setenv("AUTELLIX_CONFIG", str(file))

    assert from_command_line("gateway", []).gateway.port == 1234
    assert from_command_line("gateway", ["--set", "gateway.port=1", "--set", "log.level=debug"]).gateway.port == 1


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["--set", "gateway.foo=1"], "unknown setting gateway.foo"),
        (["--set", "gatway.port=1"], "unknown table gatway"),
        (["--set", "gateway.port=-1"], "gateway.port: Expected `int` >= 0"),
        (["--set", "gateway"], "expected table.key=value, got 'gateway'"),
        (["--port", "1"], "unrecognized arguments: --port 1"),
    ],
)
def test_wrong_command_line(arguments: list[str], expected: str, capsys: pytest.CaptureFixture[str]) -> None:
    """A command line that cannot be used ends the service with status 2 and one sentence that names it."""
    with pytest.raises(SystemExit) as ended:
        from_command_line("gateway", arguments)

    assert ended.value.code == 2
    assert capsys.readouterr().err == f"autellix serve gateway: {expected}\n"
