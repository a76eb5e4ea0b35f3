"""Install the locked requirements and tts into the environment that runs this, for scripts/setup.

It says beforehand how much that is, and how far it is. Stopped at any point, it goes on there when
it is run again: pip keeps what it has downloaded. It needs the standard library only.
"""

from __future__ import annotations

import argparse
import re
import shutil
import subprocess
import sys
import sysconfig
import time
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
LOCK, DEV_LOCK = ROOT / "requirements.lock", ROOT / "requirements-dev.lock"
LOG = ROOT / ".venv" / "setup.log"
TORCH_INDEX = "https://download.pytorch.org/whl/cpu"
LOCKED = ("--no-deps", "--require-hashes", "--only-binary=:all:")
EVERY_S = {True: 0.2, False: 15.0}
"""Seconds between two notes of progress, on a terminal and elsewhere."""


@dataclass
class Progress:
    """The packages that pip has so far, in one line on stderr."""

    packages: int
    count: int = 0
    started: float = field(default_factory=time.monotonic)
    printed_at: float = field(default_factory=time.monotonic)

    def line(self, line: str) -> None:
        """Take a line that pip has printed."""
        if collected := re.match(r"(?:Collecting|Requirement already satisfied:) ([\w.-]+)", line):
            self.count += 1
            self.tell(f"{self.count} of {self.packages} packages: {collected[1]}")
        elif line.startswith("Installing collected packages"):
            self.tell(f"unpacking {line.count(',') + 1} packages", now=True)

    def tell(self, text: str, *, now: bool = False) -> None:
        """Say how far it is: again and again in one line of a terminal, seldom elsewhere."""
        terminal = sys.stderr.isatty()
        if now or time.monotonic() - self.printed_at >= EVERY_S[terminal]:
            self.printed_at = time.monotonic()
            say(text[:70], end="" if terminal else "\n", start="\r" if terminal else "")


def main() -> None:
    """Install one part, or both."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("what", choices=("demo", "dev"))
    options = parser.parse_args()
    locks = [LOCK] if options.what == "demo" else [LOCK, DEV_LOCK]
    locked = "".join(file.read_text(encoding="utf-8") for file in locks)
    parts = re.findall(r"^# .*: (\d+) wheels, (\d+) MB\n", locked, re.M)
    progress = Progress(sum(int(packages) for packages, _ in parts))
    megabytes = sum(int(size) for _, size in parts)
    say(
        f"{progress.packages} pinned packages for .venv, a download of {megabytes} MB "
        "unless pip has them; Ctrl-C\n[setup] stops it, and run again it goes on from there"
    )
    try:
        install(locked, progress)
    except KeyboardInterrupt:
        say("stopped; run it again to go on", start="\n")
        sys.exit(130)
    took = time.monotonic() - progress.started
    say(f"ready after {took:.0f} s: .venv/bin/tts", start="\r" if sys.stderr.isatty() else "")


def install(locked: str, progress: Progress) -> None:
    """All wheels, then tts itself as it lies here."""
    forget_halves()
    LOG.write_text("")
    torch = re.findall(r"^torch==.*\n(?: .*\n)*", locked, re.M)[0]
    # PyPI has CUDA builds alone. The machine's own pip is asked first; only where it knows no CPU
    # build is PyTorch's CPU index asked, and for nothing else.
    if pip(torch, progress) and pip(torch, progress, "--index-url", TORCH_INDEX):
        fail(f"pip did not install {torch.split()[0]}, as requirements.lock names it")
    if pip(locked.replace(torch, "").replace(f"-r {LOCK.name}\n", ""), progress):
        fail("pip failed")
    progress.tell("tts itself", now=True)
    itself = ["--no-deps", "--no-build-isolation", "--editable", str(ROOT)]
    if run(["install", "--quiet", *itself], progress):
        fail("pip failed")


def forget_halves() -> None:
    """Remove what would make pip take a package for installed that it was stopped at.

    It writes the file RECORD last.
    """
    for info in Path(sysconfig.get_path("purelib")).glob("*.dist-info"):
        if not (info / "RECORD").exists():
            shutil.rmtree(info)


def pip(requirements: str, progress: Progress, *options: str) -> int:
    """Exit status of `pip install` for these requirements."""
    file = LOG.with_name("requirements.txt")
    file.write_text(requirements, encoding="utf-8")
    return run(["install", "--progress-bar", "off", *LOCKED, *options, "-r", str(file)], progress)


def run(arguments: list[str], progress: Progress) -> int:
    """Exit status of pip; what it prints goes to the log."""
    command = [sys.executable, "-m", "pip", "--disable-pip-version-check", *arguments]
    with (
        LOG.open("a", encoding="utf-8") as log,
        subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        ) as process,
    ):
        assert process.stdout is not None
        try:
            for line in process.stdout:
                log.write(line)
                progress.line(line)
        except KeyboardInterrupt:  # pip has got it, too, and tidies up
            process.wait()
            raise
    return process.returncode


def fail(text: str) -> None:
    """End the program, with the end of pip's output."""
    last = LOG.read_text(encoding="utf-8").splitlines()[-5:]
    if any("connection broken by" in line for line in last):  # pip itself finds no version
        text = "no package index could be reached: the packages come from the network"
    print(*("", *last), sep="\n", file=sys.stderr)
    say(f"{text}; see {LOG}")
    sys.exit(1)


def say(text: str, *, start: str = "", end: str = "\n") -> None:
    """A line on stderr, over what stands there."""
    blank = "\033[K" if start == "\r" else ""
    print(f"{start}[setup] {text}{blank}", end=end, file=sys.stderr, flush=True)


if __name__ == "__main__":
    main()
