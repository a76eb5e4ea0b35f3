"""What is read, from what valid file, and by which function."""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console

from tts.analysis.recorded_summary import read_whole_summary
from tts.build import paths
from tts.build.checkpoint import open_checkpoint
from tts.build.spec import load_deployment
from tts.build.tokenizer import Tokenizer
from tts.build.weights import Weights
from tts.datasets.load import load_problems
from tts.reports.runs import print_report
from tts.runlog.folder import read_config
from tts.runlog.log import read_events

MESSAGES = ({"role": "user", "content": "1 + 1?"}, {"role": "assistant", "content": "2"})


@dataclass(frozen=True)
class Reader:
    """A file of a folder that is read."""

    file: str
    """Its name in the folder."""
    valid: bytes
    read: Callable[[Path], object]
    """Reads it, given the folder."""
    beside: tuple[Path, ...] = ()
    """Files that must lie beside it."""
    header: bool = False
    """Whether the file is its own length as u64, the part that is changed, and `data`."""
    data: bytes = b""


def readers(recorded_run: Path) -> dict[str, Reader]:
    """Every reader by its name; `recorded_run` is a run's folder."""
    deployments = paths.deployments_dir()
    demo = deployments.parent / "checkpoints" / "demo-generator"
    weights = (demo / "model.safetensors").read_bytes()
    size = int.from_bytes(weights[:8], "little")
    problems = (
        {"problem": "1 + 1?", "answer": "2", "unique_id": "a/1", "level": 3},
        {"question": "2 + 2?", "answer": "so\n#### 4", "id": 7},
    )
    return {
        "deployment": Reader(
            "d.yaml",
            (deployments / "demo.yaml").read_bytes(),
            lambda folder: load_deployment(folder / "d.yaml"),
        ),
        "gpu deployment": Reader(
            "d.yaml",
            (deployments / "demo-gpu.yaml").read_bytes(),
            lambda folder: load_deployment(folder / "d.yaml"),
        ),
        "dataset": Reader(
            "set.jsonl",
            "\n".join(json.dumps(problem) for problem in problems).encode(),
            lambda folder: load_problems(str(folder / "set.jsonl")),
        ),
        "run.json": Reader("run.json", (recorded_run / "run.json").read_bytes(), read_config),
        "summary.json": Reader(
            "summary.json",
            (recorded_run / "summary.json").read_bytes(),
            _report,
            (recorded_run / "run.json", recorded_run / "events.jsonl"),
        ),
        "events": Reader(
            "events.jsonl",
            b"".join((recorded_run / "events.jsonl").read_bytes().splitlines(True)[:20]),
            lambda folder: list(read_events(folder)),
        ),
        "config.json": Reader(
            "config.json",
            (demo / "config.json").read_bytes(),
            open_checkpoint,
            (demo / "model.safetensors",),
        ),
        "safetensors header": Reader(
            "model.safetensors",
            weights[8 : 8 + size],
            Weights,
            header=True,
            data=weights[8 + size :],
        ),
        "tokenizer.json": Reader(
            "tokenizer.json",
            (demo / "tokenizer.json").read_bytes(),
            _use_tokenizer,
            (demo / "tokenizer_config.json", demo / "config.json"),
        ),
        "tokenizer_config.json": Reader(
            "tokenizer_config.json",
            (demo / "tokenizer_config.json").read_bytes(),
            _use_tokenizer,
            (demo / "tokenizer.json", demo / "config.json"),
        ),
    }


def _report(folder: Path) -> None:
    out = Console(file=io.StringIO(), width=80)
    print_report(out, [folder, folder], [read_whole_summary(folder), read_whole_summary(folder)])
    print_report(out, [folder], [read_whole_summary(folder)])


def _use_tokenizer(folder: Path) -> None:
    tokenizer = Tokenizer(folder)
    _ = tokenizer.eos_ids
    tokenizer.special_ids("bos_token")
    tokenizer.decode(tokenizer.encode("1 + 1 = 2, é\n\n"))
    tokenizer.chat(MESSAGES, generation_prompt=True)
