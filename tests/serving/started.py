"""A deployment whose engines are started: stand-ins in a folder of the test's own."""

import json
import os
import shutil
import sys
from pathlib import Path
from typing import Any

import pytest

from tts.build.spec import Deployment

ROOT = Path(__file__).resolve().parents[2]
STAND_IN = Path(__file__).parent / "stand_ins" / "engine.py"
DEMO = ROOT / "engines" / "checkpoints" / "demo-generator"


class Stage:
    """The folder of the stand-in: how it starts, and how it was called."""

    def __init__(self, folder: Path, patch: pytest.MonkeyPatch) -> None:
        self.folder = folder / "bin"
        self.folder.mkdir()
        self.program = self.folder / "vllm"
        shutil.copy(STAND_IN, self.program)
        text = self.program.read_text().replace("#!/usr/bin/env python", f"#!{sys.executable}")
        self.program.write_text(text)
        self.program.chmod(0o755)
        patch.setenv("TTS_HOME", str(folder / "home"))
        patch.setenv("PATH", f"{self.folder}{os.pathsep}{os.environ['PATH']}")
        patch.setenv("PYTHONPATH", os.pathsep.join([str(ROOT), *sys.path]))

    def starts(self, *how: str) -> None:
        """How the next starts go; all later ones go well."""
        (self.folder / "starts").write_text("".join(f"{each}\n" for each in how))

    @property
    def calls(self) -> list[dict[str, Any]]:
        """The words and the environment of each start so far."""
        file = self.folder / "calls"
        return [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []

    def add(self, name: str, code: str) -> None:
        """Another program on PATH."""
        (self.folder / name).write_text(f"#!{sys.executable}\n{code}")
        (self.folder / name).chmod(0o755)


def started_deployment(name: str = "pair", **changes: Any) -> Deployment:
    """Both engines on vLLM; a section of `changes` is added to that of the role."""
    engine = {"checkpoint": DEMO, "max_seq_len": 160, "kv_gib": 0.1}
    data = {
        "name": name,
        "target": "vllm",
        "generator": {**engine, "in_flight_requests": 8, **changes.pop("generator", {})},
        "verifier": {**engine, "in_flight_tokens": 512, **changes.pop("verifier", {})},
    }
    return Deployment.model_validate(data | changes)
