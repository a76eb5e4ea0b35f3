"""Runs in processes of their own: started, looked into, and what they leave."""

from __future__ import annotations

import json
import signal
import subprocess
import time
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil

from scripts.robustness.commands import processes, start

SHARED_MEMORY = Path("/dev/shm")
ORDERLY = ("Interrupted.", "Stopped by SIGTERM.")
GRACE_S = 60.0
"""How long what a run has started may take to be gone after it."""


@dataclass
class Run:
    """A `tts bench` and its resumes, each in a process of its own."""

    home: Path
    folder: Path
    strategy: str
    schedule: str = "decoupled"
    problems: int = 30
    deployment: str = "demo"
    variables: dict[str, str] = field(default_factory=dict)
    """Environment variables besides this process's."""
    started: list[subprocess.Popen[bytes]] = field(default_factory=list)
    """Its processes so far; the first begins the run, as long as there is no run.json."""

    def start(self) -> None:
        """Start the run, or resume it if it has begun."""
        arguments = ["bench", "--resume", str(self.folder)]
        if not (self.folder / "run.json").exists():
            arguments = ["bench", self.deployment, "--out", str(self.folder), "--seed", "3"]
            arguments += ["--limit", str(self.problems)]
            arguments += ["--strategy", self.strategy, "--schedule", self.schedule]
            arguments += [] if self.strategy == "greedy" else ["--n", "8"]
        with self._said(len(self.started)).open("wb") as errors:
            self.started.append(
                start(self.home, *arguments, variables=self.variables, stderr=errors)
            )

    @property
    def process(self) -> subprocess.Popen[bytes]:
        """The one that was started last."""
        return self.started[-1]

    @property
    def server(self) -> list[psutil.Process]:
        """The tritonserver process; the guard has its path among its arguments."""
        return processes(self.home, "bin/tritonserver", place=0)

    @property
    def guard(self) -> list[psutil.Process]:
        """The process that stops the server when its parent is gone."""
        return processes(self.home, "guard.py")

    def stub(self, model: str) -> list[psutil.Process]:
        """The process of one model."""
        return processes(self.home, f"/{model}/1/model.py", place=1)

    def engine(self, model: str) -> list[psutil.Process]:
        """The process of the engine behind a model."""
        engines: list[psutil.Process] = []
        for stub in self.stub(model):
            with suppress(psutil.NoSuchProcess):
                engines += stub.children()
        return engines

    @property
    def under_way(self) -> bool:
        """Whether an engine has answered it."""
        return self.log.exists() and b'"generated"' in self.log.read_bytes()

    @property
    def log(self) -> Path:
        """Its event log, which may not be there yet."""
        return self.folder / "events.jsonl"

    @property
    def complete(self) -> bool:
        """Whether nothing of it is left to be done."""
        return (self.folder / "summary.json").exists()

    def how_it_ended(self, number: int) -> str | None:
        """What was wrong with the end of its process `number`: None if it was a sentence."""
        text = self._said(number).read_text(encoding="utf-8", errors="replace")
        if "Traceback" in text or "This is a bug" in text:
            return f"a bug: {text[-1500:]}"
        code = self.started[number].returncode
        if code > 0 and "error: " not in text and not any(w in text for w in ORDERLY):
            return f"exit {code} without a sentence: {text[-500:]!r}"
        return None

    def last_words(self) -> str:
        """How its last process ended: its error, if it gave one, or what ended it."""
        text = self._said(len(self.started) - 1).read_text(errors="replace")
        errors = [line for line in text.splitlines() if line.startswith("error: ")]
        return errors[-1][:200] if errors else f"exit {self.process.returncode}"

    def outcome(self) -> Outcome:
        """What a complete run came to."""
        summary = json.loads((self.folder / "summary.json").read_text())
        events = map(json.loads, self.log.read_text().splitlines())
        solved = [event for event in events if event["event"] == "problem_solved"]
        answers = {event["problem"]: (event["answers"], event["correct"]) for event in solved}
        return Outcome(summary["tree_digest"], len(solved), answers)

    def _said(self, number: int) -> Path:
        return self.folder.with_name(f"{self.folder.name}.{number}.err")


@dataclass(frozen=True)
class Outcome:
    """What must not depend on faults."""

    digest: str
    solutions: int
    """How many the log holds; more than problems if one was solved twice."""
    answers: dict[str, Any]
    """The answer of each rule, and which of them are right, by problem."""

    def differs(self, other: Outcome) -> str | None:
        """What this one has wrong, `other` being right."""
        wrong = [p for p in other.answers if self.answers.get(p) != other.answers[p]]
        if wrong:
            return f"wrong answers to {len(wrong)} problems, such as {wrong[0]}"
        if self.solutions != other.solutions:
            return f"{self.solutions} solutions in the log, not {other.solutions}"
        if self.digest != other.digest:
            return f"its digest is {self.digest}, not {other.digest}"
        return None


def send(candidates: list[psutil.Process], number: int) -> psutil.Process | None:
    """Send a signal to the first of these that is still there, and return it."""
    for process in candidates:
        try:
            process.send_signal(number)
        except psutil.NoSuchProcess:
            continue
        return process
    return None


def leftovers(home: Path) -> list[str]:
    """Processes of a home that are still there after GRACE_S; they are killed."""
    deadline = time.monotonic() + GRACE_S
    while remains := processes(home):
        if time.monotonic() > deadline:
            for process in remains:
                send([process], signal.SIGKILL)
            return [" ".join(process.info["cmdline"])[:80] for process in remains]
        time.sleep(0.1)
    return []


def left_memory(old: set[str]) -> list[str]:
    """Shared memory of no process that is still there after GRACE_S, besides what is known."""
    deadline = time.monotonic() + GRACE_S  # others may be stopping servers on this machine
    while remains := orphans() - old:
        if time.monotonic() > deadline:
            return sorted(remains)
        time.sleep(0.1)
    return []


def orphans() -> set[str]:
    """Shared memory of servers that are gone: no process names it."""
    words = [
        word
        for process in psutil.process_iter(["cmdline"])
        for word in process.info["cmdline"] or ()
        if "tts-" in word
    ]
    files = [file.name for file in SHARED_MEMORY.glob("tts-*")]
    return {name for name in files if not any("-".join(name.split("-")[:2]) in w for w in words)}
