"""Building with the stand-in toolchain, and looking at what it was asked.

The toolchain plays docker, the container and a GPU. What it cannot show is that TensorRT-LLM does
what the stand-in does.
"""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tts.build.builder import BuildReport, build_engines
from tts.build.spec import Deployment

STANDIN = Path(__file__).parent / "standin"
TOOLS = ("docker", "nvidia-smi", "python3", "trtllm-build")
Deploy = Callable[..., Deployment]
Misbehave = Callable[..., None]


def install_version(site: Path, version: str) -> None:
    info = site / "tensorrt_llm.dist-info"
    info.mkdir(exist_ok=True)
    (info / "METADATA").write_text(
        f"Metadata-Version: 2.1\nName: tensorrt_llm\nVersion: {version}\n"
    )


def build(deployment: Deployment, role: Any = "generator", **options: Any) -> BuildReport:
    (report,) = build_engines(deployment, roles=[role], **({"say": print} | options))
    return report


def calls(state: Path, tool: str) -> list[list[str]]:
    lines = (
        (state / "calls.jsonl").read_text().splitlines() if (state / "calls.jsonl").exists() else []
    )
    return [call[1:] for line in lines if (call := json.loads(line))[0] == tool]


def option_of(call: list[str], name: str) -> str | None:
    """The value of an option of `docker run`; None without it."""
    given = (word.partition("=") for word in call)
    return next((value for option, _, value in given if option == name), None)


def conversions(state: Path) -> int:
    file = state / "converted"
    return len(file.read_text().splitlines()) if file.exists() else 0


def nothing_half_built(home: Path) -> bool:
    """No engine, no folder on its way to be one; a finished conversion and a log may be kept."""
    root = home / "built" / "test"
    names = {entry.name for entry in root.iterdir()} if root.exists() else set()
    kept = {".build.lock", "generator-build.log", ".generator.work"}
    work = root / ".generator.work"
    half = (work / "engine").exists() or (work.exists() and not (work / "checkpoint.json").exists())
    return names <= kept and not half
