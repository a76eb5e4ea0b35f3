"""Building with the stand-in toolchain, and looking at what it was asked.

The toolchain plays docker, the container and a GPU. What it cannot show is that TensorRT-LLM does
what the stand-in does.
"""

import json
from pathlib import Path

from tts.build.builder import build_engines

STANDIN = Path(__file__).parent / "standin"
TOOLS = ("docker", "nvidia-smi", "python3", "trtllm-build")


def install_version(site, version):
    info = site / "tensorrt_llm.dist-info"
    info.mkdir(exist_ok=True)
    (info / "METADATA").write_text(
        f"Metadata-Version: 2.1\nName: tensorrt_llm\nVersion: {version}\n"
    )


def build(deployment, role="generator", **options):
    (report,) = build_engines(deployment, roles=[role], **({"say": print} | options))
    return report


def calls(state, tool):
    lines = (
        (state / "calls.jsonl").read_text().splitlines() if (state / "calls.jsonl").exists() else []
    )
    return [call[1:] for line in lines if (call := json.loads(line))[0] == tool]


def option_of(call, name):
    """The value of an option of `docker run`; None without it."""
    given = (word.partition("=") for word in call)
    return next((value for option, _, value in given if option == name), None)


def conversions(state):
    file = state / "converted"
    return len(file.read_text().splitlines()) if file.exists() else 0


def nothing_half_built(home):
    """No engine, no folder on its way to be one; a finished conversion and a log may be kept."""
    root = home / "built" / "test"
    names = {entry.name for entry in root.iterdir()} if root.exists() else set()
    kept = {".build.lock", "generator-build.log", ".generator.work"}
    work = root / ".generator.work"
    half = (work / "engine").exists() or (work.exists() and not (work / "checkpoint.json").exists())
    return names <= kept and not half
