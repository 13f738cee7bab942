"""API keys: what a file of them holds, and whom one opens for."""

import stat
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from autellix.services.access.__main__ import main
from autellix.services.api_keys import ApiKeys, Entry, digest_of, line_of, new_key, parse, tenant_of
from autellix.services.config import StartError

DIGEST = digest_of(b"k")


def test_parse() -> None:
    """A line is a tenant and a digest; what follows `#`, and empty lines, are for people."""
    text = f"# keys\n\nacme {DIGEST} # Jo\u00e3o\n* {DIGEST}\n"

    assert [Entry("acme", DIGEST), Entry("", DIGEST)] == parse(text)


@pytest.mark.parametrize(
    "line",
    [
        "acme",
        f"acme {DIGEST} more",
        f"Acme {DIGEST}",
        f"a.b {DIGEST}",
        f"a~b {DIGEST}",
        f"-a {DIGEST}",
        f"{'a' * 33} {DIGEST}",
        f"acme {DIGEST[:-1]}",
        f"acme {DIGEST.upper()}",
        f"** {DIGEST}",
        "acme k",
    ],
)
def test_what_is_no_line(line: str) -> None:
    """Anything else is named by its number, and never by what it holds: it may be a key."""
    with pytest.raises(ValueError, match=r"^line 2 is not a tenant and a SHA-256$"):
        parse(f"acme {DIGEST}\n{line}\n")


def test_tenant_of() -> None:
    """A key opens for its tenant, the operator's for nobody in particular, and another for none."""
    entries = parse(line_of("acme", "one") + line_of("zen", "two") + line_of("*", "all"))

    assert ["acme", "zen", "", None] == [tenant_of(entries, key) for key in (b"one", b"two", b"all", b"none")]
    assert tenant_of(entries, b"\xff\x00") is None
    assert tenant_of(entries, digest_of(b"one").encode()) is None


def test_new_keys_differ() -> None:
    """Each is long and another one."""
    made = {new_key() for _ in range(100)}

    assert 100 == len(made)
    assert all(key.startswith("ak_") and len(key) >= 46 for key in made)


def test_file_that_changes(tmp_path: Path) -> None:
    """What is added opens, what is taken out does not; while it cannot be read what opened before does."""
    file = tmp_path / "keys"
    file.write_text(line_of("acme", "one"))
    keys = ApiKeys(file)
    file.write_text(line_of("zen", "two!"))
    after = [keys.tenant_of(key) for key in (b"one", b"two!")]
    file.write_text("what is this")
    with capture_logs() as logs:
        broken = [keys.tenant_of(key) for key in (b"one", b"two!")]
    file.unlink()
    gone = keys.tenant_of(b"two!")

    assert [None, "zen"] == after == broken
    assert "zen" == gone
    assert "line 1 is not a tenant and a SHA-256" in {log.get("error") for log in logs}


@pytest.mark.parametrize("text", [None, "what is this"])
def test_file_that_cannot_be_used(tmp_path: Path, text: str | None) -> None:
    """A gateway does not start open because its keys are missing."""
    file = tmp_path / "keys"
    if text is not None:
        file.write_text(text)

    with pytest.raises(StartError, match="API keys"):
        ApiKeys(file)


def test_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """It prints a key and keeps its digest, in a file for its owner only, beside those that are there."""
    file = tmp_path / "keys"
    for whose in (["acme"], ["--operator"], ["acme"]):
        assert 0 == main(["key", str(file), *whose])
    printed = capsys.readouterr().out.split()

    assert ["acme", "", "acme"] == [ApiKeys(file).tenant_of(key.encode()) for key in printed]
    assert not [key for key in printed if key in file.read_text()]
    assert 0o600 == stat.S_IMODE(file.stat().st_mode)


@pytest.mark.parametrize(
    "arguments", [["key", "f"], ["key", "f", "A B"], ["key", "f", "a", "--operator"], ["nats"], []]
)
def test_command_that_is_wrong(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    """It says so in a sentence, with status 2."""
    with pytest.raises(SystemExit) as end:
        main(arguments)

    assert 2 == end.value.code
    assert "autellix access" in capsys.readouterr().err


def test_nats_again(tmp_path: Path) -> None:
    """Run again it keeps every key and adds what is missing; a tenant whose seed is gone is out."""
    folder = tmp_path / "nats"
    assert 0 == main(["nats", str(folder), "--tenant", "acme", "--tenant", "zen"])
    seeds = {path: path.read_text() for path in folder.rglob("*.nk")}
    (folder / "tenants" / "zen.nk").unlink()
    assert 0 == main(["nats", str(folder), "--tenant", "new"])
    again = {path: path.read_text() for path in folder.rglob("*.nk")}
    rules = (folder / "nats-access.conf").read_text()

    assert {path.stem for path in again} == {path.stem for path in seeds} - {"zen"} | {"new"}
    assert all(seeds[path] == again[path] for path in seeds.keys() & again.keys())
    assert "tenant-new" in rules
    assert "zen" not in rules


def test_nats_with_a_broken_seed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """It names the file, not what is in it, and leaves the rules as they are."""
    folder = tmp_path / "nats"
    main(["nats", str(folder)])
    before = (folder / "nats-access.conf").read_text()
    (folder / "gateway.nk").write_text("SU-nonsense")
    capsys.readouterr()

    assert 1 == main(["nats", str(folder)])
    error = capsys.readouterr().err
    assert "gateway.nk holds no nkey seed" in error
    assert "nonsense" not in error
    assert before == (folder / "nats-access.conf").read_text()
