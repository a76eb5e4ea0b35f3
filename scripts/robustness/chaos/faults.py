"""What happens to a run, one function for each kind of fault."""

from __future__ import annotations

import os
import random
import signal
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Literal

import psutil

from .proxy import Proxy
from .runs import Run, send
from .surroundings import Clock

ENGINES = ("generator", "prm")
HOUR_S = 3600


@dataclass
class Scene:
    """A run and what surrounds it, while a fault happens."""

    run: Run
    others: list[Run] = field(default_factory=list)
    """Runs that the fault starts; they must come to the same as `run`."""
    proxy: Proxy | None = None
    """In front of the server that `run` uses, where its fault needs one."""
    clock: Clock | None = None
    """The clock of the run's processes, where its fault needs one."""
    freeze_s: float = 30.0
    """How long a process is stopped."""


def kill_bench(scene: Scene, rng: random.Random) -> None:
    """SIGKILL the command itself."""
    scene.run.process.kill()


def interrupt(scene: Scene, rng: random.Random) -> None:
    """Ctrl-C, once or several times."""
    for _ in range(rng.randint(1, 4)):
        scene.run.process.send_signal(signal.SIGINT)
        time.sleep(rng.random() / 10)


def terminate(scene: Scene, rng: random.Random) -> None:
    """SIGTERM."""
    scene.run.process.terminate()


def victims(scene: Scene, name: str, rng: random.Random) -> list[psutil.Process]:
    """The processes that a fault may be done to, by the name of their kind."""
    run = scene.run
    if name == "bench":
        return [psutil.Process(run.process.pid)]
    if name in ("server", "guard"):
        return run.server if name == "server" else run.guard
    if name in ENGINES:
        return run.engine(name)
    model = rng.choice(ENGINES)
    return run.stub(model) if name == "stub" else run.engine(model)


def kill(scene: Scene, rng: random.Random, name: str) -> bool:
    """SIGKILL a process of the server: tritonserver, a model, an engine or the guard."""
    return send(victims(scene, name, rng), signal.SIGKILL) is not None


def freeze(scene: Scene, rng: random.Random, name: str) -> bool:
    """SIGSTOP a process for a while."""
    if frozen := send(victims(scene, name, rng), signal.SIGSTOP):
        time.sleep(scene.freeze_s)
        send([frozen], signal.SIGCONT)
    return frozen is not None


def two_at_once(scene: Scene, rng: random.Random) -> bool:
    """Two of the above, each to a process of the server, the second within two seconds."""
    first, second = rng.sample(("server", "stub", *ENGINES), 2)
    act = kill
    if rng.random() < 0.5:
        act, second = freeze, rng.choice(("stub", "engine"))
    hit = kill(scene, rng, first)
    time.sleep(rng.choice([0, rng.uniform(0, 2)]))
    return act(scene, rng, second) or hit


def second_run(scene: Scene, rng: random.Random) -> None:
    """Resume the very same run while it is going on."""
    scene.run.start()


def two_resumes(scene: Scene, rng: random.Random) -> None:
    """SIGKILL the command, then resume its run twice at once."""
    scene.run.process.kill()
    scene.run.process.wait()
    scene.run.start()
    time.sleep(rng.choice([0, rng.random()]))
    scene.run.start()


def two_runs(scene: Scene, rng: random.Random) -> None:
    """Begin another run in the same home; whichever started the server stops it in the end."""
    run = scene.run
    other = replace(run, folder=run.folder.with_name(f"{run.folder.name}-beside"), started=[])
    other.start()
    scene.others.append(other)


def limit_file_size(scene: Scene, rng: random.Random) -> None:
    """The log cannot grow any more, as on a full disk."""
    log = scene.run.log
    size = log.stat().st_size if log.exists() else 0
    bench = psutil.Process(scene.run.process.pid)
    bench.rlimit(psutil.RLIMIT_FSIZE, (size + 2000, size + 2000))


def limit_memory(scene: Scene, rng: random.Random) -> bool:
    """Nothing is left of the memory for the command, the server, a model or an engine."""
    processes = victims(scene, rng.choice(("bench", "server", "stub", "engine")), rng)
    for process in processes:
        limit = process.memory_info().vms + rng.choice([0, rng.randrange(2**23)])
        process.rlimit(psutil.RLIMIT_AS, (limit, limit))
    return bool(processes)


def cut_log(scene: Scene, rng: random.Random) -> None:
    """SIGKILL, and the end of the log was not on the disk yet."""
    scene.run.process.kill()
    scene.run.process.wait()
    log = scene.run.log
    if log.exists():
        os.truncate(log, max(0, log.stat().st_size - rng.randint(1, 5000)))


def jump_clock(scene: Scene, rng: random.Random) -> None:
    """The wall clock jumps by an hour, forward or back, once or several times."""
    assert scene.clock
    for _ in range(rng.randint(1, 3)):
        scene.clock.jump(rng.choice([-HOUR_S, HOUR_S]))
        time.sleep(rng.uniform(0, 2))


def cut(scene: Scene, rng: random.Random, *, reset: bool) -> None:
    """The connection ends in the middle of a message; a new one cannot be made for a while.

    `reset`: by RST, not FIN.
    """
    assert scene.proxy
    for _ in range(rng.randint(1, 3)):
        away_s = rng.choice([0, rng.uniform(0, 10)])
        scene.proxy.do(scene.proxy.cut(rng.random(), reset=reset, away_s=away_s))
        time.sleep(rng.uniform(0, 2))


def delay_connection(scene: Scene, rng: random.Random) -> None:
    """Nothing passes for a while, or everything does later."""
    assert scene.proxy
    if rng.random() < 0.5:
        scene.proxy.do(scene.proxy.hold(rng.uniform(0.5, 20)))
    else:
        scene.proxy.do(scene.proxy.delay(rng.uniform(0.02, 0.5), rng.uniform(1, 10)))


Promise = Literal["survived", "survived by a run", "resumed"]


@dataclass(frozen=True)
class Fault:
    """A kind of fault, and what docs/explanation/security.md promises of it."""

    happen: Callable[[Scene, random.Random], bool | None]
    """Makes it happen; False if the process that it is about was not there, or not yet."""
    promise: Promise = "resumed"
    """`survived`: the run ends right by itself; `survived by a run`: as soon as it has begun, or if
    `tts serve` keeps its server; `resumed`: it may also end by a sentence, and be resumed."""
    needs: Literal["proxy", "clock"] | None = None
    of_server: bool = False
    """Whether it is done to the server's processes, whoever has started it."""


FAULTS: dict[str, Fault] = {
    "kill-bench": Fault(kill_bench),
    "interrupt": Fault(interrupt),
    "terminate": Fault(terminate),
    **{
        f"kill-{name}": Fault(partial(kill, name=name), "survived by a run", of_server=True)
        for name in ("server", "stub", *ENGINES, "guard")
    },
    "two-at-once": Fault(two_at_once, "survived by a run", of_server=True),
    **{
        f"freeze-{name}": Fault(partial(freeze, name=name), "survived", of_server=name != "bench")
        for name in ("server", "stub", "engine", "guard", "bench")
    },
    "second-run": Fault(second_run),
    "two-resumes": Fault(two_resumes),
    "two-runs": Fault(two_runs),
    "limit-file-size": Fault(limit_file_size),
    "limit-memory": Fault(limit_memory),
    "cut-log": Fault(cut_log),
    "jump-clock": Fault(jump_clock, "survived", needs="clock"),
    "cut-connection": Fault(partial(cut, reset=False), "survived", needs="proxy"),
    "reset-connection": Fault(partial(cut, reset=True), "survived", needs="proxy"),
    "delay-connection": Fault(delay_connection, "survived", needs="proxy"),
}
