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
    ],
)
def test_text_needs_no_quotes(override: str, expected: str) -> None:
    """A value that is no TOML is text as it stands."""
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


def test_settings_do_not_change() -> None:
    """Settings are what they were when the process began."""
    with pytest.raises(AttributeError):
        load(None).nats.url = "x"  # type: ignore[misc]
    assert load(None) == msgspec.convert({}, Config)


def test_command_line(file: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """A service takes its file from the command line or the environment; a wrong one ends it with status 2."""
    file.write_text("[gateway]\nport = 1234\n")
    monkeypatch.setenv("AUTELLIX_CONFIG", str(file))

    assert from_command_line([]).gateway.port == 1234
    assert from_command_line(["--set", "gateway.port=1", "--set", "log.level=debug"]).gateway.port == 1
    with pytest.raises(SystemExit) as ended:
        from_command_line(["--set", "gateway.prot=1"])
    assert ended.value.code == 2
    assert "prot" in capsys.readouterr().err
