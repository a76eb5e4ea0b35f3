"""What happens to a run, one function for each kind of fault."""

from __future__ import annotations

import os
import random
import signal
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
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


def kill_server(scene: Scene, rng: random.Random) -> bool:
    """SIGKILL tritonserver."""
    return _kill(scene.run.server)


def kill_stub(scene: Scene, rng: random.Random) -> bool:
    """SIGKILL the process of one model."""
    return _kill(scene.run.stub(rng.choice(ENGINES)))


def kill_generator(scene: Scene, rng: random.Random) -> bool:
    """SIGKILL the process of the generator's engine."""
    return _kill(scene.run.engine("generator"))


def kill_verifier(scene: Scene, rng: random.Random) -> bool:
    """SIGKILL the process of the verifier's engine."""
    return _kill(scene.run.engine("prm"))


def kill_guard(scene: Scene, rng: random.Random) -> bool:
    """SIGKILL the process that stops the server when its parent is gone."""
    return _kill(scene.run.guard)


def _kill(candidates: list[psutil.Process]) -> bool:
    return send(candidates, signal.SIGKILL) is not None


def freeze_server(scene: Scene, rng: random.Random) -> bool:
    """SIGSTOP tritonserver for a while."""
    return _freeze(scene, scene.run.server)


def freeze_stub(scene: Scene, rng: random.Random) -> bool:
    """SIGSTOP the process of one model for a while."""
    return _freeze(scene, scene.run.stub(rng.choice(ENGINES)))


def freeze_engine(scene: Scene, rng: random.Random) -> bool:
    """SIGSTOP the process of an engine for a while."""
    return _freeze(scene, scene.run.engine(rng.choice(ENGINES)))


def freeze_guard(scene: Scene, rng: random.Random) -> bool:
    """SIGSTOP the process that stops the server for a while."""
    return _freeze(scene, scene.run.guard)


def freeze_bench(scene: Scene, rng: random.Random) -> bool:
    """SIGSTOP the command itself for a while."""
    return _freeze(scene, [psutil.Process(scene.run.process.pid)])


def _freeze(scene: Scene, candidates: list[psutil.Process]) -> bool:
    if frozen := send(candidates, signal.SIGSTOP):
        time.sleep(scene.freeze_s)
        send([frozen], signal.SIGCONT)
    return frozen is not None


def two_at_once(scene: Scene, rng: random.Random) -> bool:
    """Two of the above, each to a process of the server, the second within two seconds."""
    first, second = rng.sample((kill_server, kill_stub, kill_generator, kill_verifier), 2)
    if rng.random() < 0.5:
        second = rng.choice((freeze_stub, freeze_engine))
    hit = first(scene, rng)
    time.sleep(rng.choice([0, rng.uniform(0, 2)]))
    return second(scene, rng) or hit


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
    run = scene.run
    bench = [psutil.Process(run.process.pid)]
    models = [run.stub(rng.choice(ENGINES)), run.engine(rng.choice(ENGINES))]
    victims = rng.choice([bench, run.server, *models])
    for process in victims:
        limit = process.memory_info().vms + rng.choice([0, rng.randrange(2**23)])
        process.rlimit(psutil.RLIMIT_AS, (limit, limit))
    return bool(victims)


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


def cut_connection(scene: Scene, rng: random.Random) -> None:
    """The connection ends in the middle of a message; a new one cannot be made for a while."""
    _cut(scene, rng, reset=False)


def reset_connection(scene: Scene, rng: random.Random) -> None:
    """The connection is reset in the middle of a message; a new one fails for a while."""
    _cut(scene, rng, reset=True)


def _cut(scene: Scene, rng: random.Random, *, reset: bool) -> None:
    assert scene.proxy
    for _ in range(rng.randint(1, 3)):
        away_s = rng.choice([0, rng.uniform(0, 10)])
        scene.proxy.cut(rng.random(), reset=reset, away_s=away_s)
        time.sleep(rng.uniform(0, 2))


def delay_connection(scene: Scene, rng: random.Random) -> None:
    """Nothing passes for a while, or everything does later."""
    assert scene.proxy
    if rng.random() < 0.5:
        scene.proxy.hold(rng.uniform(0.5, 20))
    else:
        scene.proxy.delay(rng.uniform(0.02, 0.5), rng.uniform(1, 10))


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
    fault.happen.__name__.replace("_", "-"): fault
    for fault in (
        Fault(kill_bench),
        Fault(interrupt),
        Fault(terminate),
        *(
            Fault(kill, "survived by a run", of_server=True)
            for kill in (
                kill_server,
                kill_stub,
                kill_generator,
                kill_verifier,
                kill_guard,
                two_at_once,
            )
        ),
        *(
            Fault(freeze, "survived", of_server=True)
            for freeze in (freeze_server, freeze_stub, freeze_engine, freeze_guard)
        ),
        Fault(freeze_bench, "survived"),
        Fault(second_run),
        Fault(two_resumes),
        Fault(two_runs),
        Fault(limit_file_size),
        Fault(limit_memory),
        Fault(cut_log),
        Fault(jump_clock, "survived", needs="clock"),
        Fault(cut_connection, "survived", needs="proxy"),
        Fault(reset_connection, "survived", needs="proxy"),
        Fault(delay_connection, "survived", needs="proxy"),
    )
}
