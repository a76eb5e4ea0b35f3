"""A case: what is drawn from the seed, its course, and what must hold at its end."""

from __future__ import annotations

import random
import subprocess
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import psutil

from scripts.robustness.commands import serve
from tts.strategies.names import STRATEGY_NAMES

from .faults import FAULTS, Scene
from .proxy import Proxy
from .runs import Run, left_memory, leftovers, orphans
from .surroundings import Clock, Surroundings

SCHEDULES = ("lockstep", "batched", "alternating", "decoupled")
LONGEST_S = 900.0
"""How long a run, or a resume of it, may take."""
MOST_RESUMES = 5


@dataclass(frozen=True)
class Case:
    """What a number and a seed give."""

    number: int
    seed: int
    strategy: str
    schedule: str
    fault: str
    served: bool
    """Whether `tts serve` keeps the server, rather than the run itself."""

    @property
    def rng(self) -> random.Random:
        """For the moment and the details of the fault."""
        return random.Random(f"{self.seed}/{self.number}/course")

    def __str__(self) -> str:
        served = " served" if self.served else ""
        return f"{self.number:3} {self.fault} {self.strategy} {self.schedule}{served}"


@dataclass(frozen=True)
class Verdict:
    """What became of a case."""

    wrong: str | None
    resumes: tuple[str, ...]
    """Why the run had to be resumed, each time: what it said last."""
    hit: bool
    """Whether the fault found what it is about: not if the run was over or had no server yet."""


def draw(number: int, seed: int, faults: Sequence[str]) -> Case:
    """A case, whatever those before it were; of some kinds of fault."""
    rng = random.Random(f"{seed}/{number}")
    strategy, schedule = rng.choice(STRATEGY_NAMES), rng.choice(SCHEDULES)
    fault = rng.choice(faults)
    served = FAULTS[fault].of_server and rng.random() < 0.5
    return Case(number, seed, strategy, schedule, fault, served)


def attempt(case: Case, around: Surroundings, freeze_s: float) -> Verdict:
    """Carry a case out; its files are in `around.cases`. What is frozen is so for `freeze_s`."""
    fault, rng, old_memory = FAULTS[case.fault], case.rng, orphans()
    clean = around.undisturbed(case.strategy)
    temporary = around.cases / f"{case.number}-tmp"
    temporary.mkdir()
    run = Run(
        around.home,
        around.cases / str(case.number),
        case.strategy,
        case.schedule,
        around.problems,
        variables={"TMPDIR": str(temporary), "XDG_RUNTIME_DIR": str(around.sockets)},
    )
    scene = Scene(run, freeze_s=freeze_s)
    serving = None
    if case.served:
        errors = run.folder.with_suffix(".serve.err")
        serving = serve(run.home, run.deployment, errors, run.variables)
    moments = ["at once", "starting", "running", "running", "running"]
    if fault.needs == "proxy":
        scene.proxy = Proxy(around.served_socket())
        file = run.folder.with_suffix(".yaml")
        run.deployment = around.far_deployment(file, scene.proxy.port)
        moments = ["running"]  # before that it is refused, as it must be
    if fault.needs == "clock":
        assert around.clock
        scene.clock = Clock(around.clock, run.folder.with_suffix(".clock"))
        run.variables |= scene.clock.variables
    try:
        run.start()
        wait_until(run, rng.choice(moments), clean.log.stat().st_size, rng)
        hit = False
        is_begun = case.served or run.under_way
        if run.process.poll() is None:
            with suppress(psutil.NoSuchProcess):  # it ended just then
                hit = fault.happen(scene, rng) is not False
        wrong, resumes = see_through([run, *scene.others], serving)
    finally:
        if serving:
            serving.kill()  # if it was not stopped in order
            serving.wait()
        if scene.proxy:
            scene.proxy.close()
    survived = fault.promise == "survived" or (fault.promise == "survived by a run" and is_begun)
    if resumes and survived and not wrong:
        wrong = "it did not end right by itself"
    wrong = wrong or what_is_wrong(
        [run, *scene.others], clean, temporary, around.sockets, old_memory
    )
    return Verdict(wrong, resumes, hit)


def see_through(
    runs: list[Run], serving: subprocess.Popen[bytes] | None = None
) -> tuple[str | None, tuple[str, ...]]:
    """Wait for the end of some runs and resume them until all are complete.

    `serving`, which keeps their server, is stopped when they have ended for the first time.
    Returns what went wrong meanwhile, if anything did, and why they had to be resumed.
    """
    home = runs[0].home
    resumes: list[str] = []
    while True:
        wrong = wait_for_end(runs)
        if serving:
            serving.terminate()
            if status := serving.wait(LONGEST_S):
                wrong = wrong or f"tts serve ended with {status}"
            serving = None
        if remains := leftovers(home):
            wrong = wrong or f"processes are left: {remains}"
        incomplete = [run for run in runs if not run.complete]
        if wrong or not incomplete:
            return wrong, tuple(resumes)
        if len(resumes) == MOST_RESUMES:
            return f"not complete after {MOST_RESUMES} resumes", tuple(resumes)
        resumes.append("; ".join(run.last_words() for run in incomplete))
        for run in incomplete:
            run.start()


def wait_for_end(runs: list[Run]) -> str | None:
    """Wait until no process of some runs is left; what is wrong with how one of them ended."""
    deadline = time.monotonic() + LONGEST_S
    for run in runs:
        for number, process in enumerate(run.started):
            try:
                process.wait(max(0.0, deadline - time.monotonic()))
            except subprocess.TimeoutExpired:
                return f"still going after {LONGEST_S:.0f} s"  # killed with all that is left
            if wrong := run.how_it_ended(number):
                return wrong
    return None


def what_is_wrong(
    runs: list[Run], clean: Run, temporary: Path, sockets: Path, old_memory: set[str]
) -> str | None:
    """What some complete runs have got wrong, or left; `known` is shared memory from before."""
    expected = clean.outcome()
    for run in runs:
        if wrong := run.outcome().differs(expected):
            return wrong
    if remains := sorted(file.name for file in temporary.rglob("*")):
        return f"temporary files are left: {remains}"
    if remains := sorted(str(file) for file in sockets.rglob("*") if not file.is_dir()):
        return f"sockets are left: {remains}"
    if remains := left_memory(old_memory):
        return f"shared memory is left: {remains}"
    return None


def wait_until(run: Run, moment: str, log_bytes: int, rng: random.Random) -> None:
    """Until a run is where it is to be disturbed, or over; `log_bytes`: its log in the end."""
    if moment == "at once":
        time.sleep(rng.random())
        return
    deadline = time.monotonic() + LONGEST_S
    target_bytes = rng.uniform(0, 0.9) * log_bytes
    while run.process.poll() is None and time.monotonic() < deadline:
        if moment == "starting" and run.server:
            return
        if moment == "running" and run.log.exists() and run.log.stat().st_size >= target_bytes:
            return
        time.sleep(0.02)
