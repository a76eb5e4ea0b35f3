"""The programs below scripts/, in processes of their own."""

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]


def command(name: str, *arguments: object) -> list[str]:
    """The command that runs a program in this process's environment."""
    return [sys.executable, str(ROOT / "scripts" / "programs.py"), name, *map(str, arguments)]


def run(name: str, *arguments: object) -> subprocess.CompletedProcess[str]:
    """A program that has ended, with what it said."""
    return subprocess.run(command(name, *arguments), capture_output=True, text=True, check=False)
