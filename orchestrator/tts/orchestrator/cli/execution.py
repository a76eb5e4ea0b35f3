"""What `tts bench` and `tts solve` do, between the command line and the runner."""

from __future__ import annotations

import asyncio
import contextlib
import signal
from collections.abc import Callable, Coroutine, Iterator
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any, Protocol, TypeVar

from tts.build import paths
from tts.build.builder import require_current
from tts.build.errors import EndpointError, Interrupted, TtsError
from tts.build.spec import Deployment, load_deployment
from tts.serving.health import observe
from tts.serving.lookup import find_server
from tts.serving.repository import deployment_digest
from tts.serving.server import start_server

from ..context import Context, Models
from ..datasets.load import load_problems
from ..problem import Problem
from ..runlog import read_config
from ..runner import Plan, Progress, execute
from ..scheduling import Schedule
from ..strategies import find_strategy
from .say import say
from .show import LiveTree, ProgressBar

TICK_S = 0.1  # how often progress is drawn
HEALTH_CHECK_S = 1.0

T = TypeVar("T")


class _Display(Protocol):
    def update(self) -> None: ...


@dataclass(frozen=True)
class Wanted:
    """What the user asks a run to be, in the user's words. `dataset` is a name or a file."""

    deployment: str
    dataset: str
    limit: int | None
    seed: int
    strategy: str
    schedule: Schedule
    parameters: dict[str, Any]


def run_bench(wanted: Wanted, out: Path | None) -> Path:
    """Plan a benchmark run, check everything that can be checked, and run it; its folder."""
    problems = load_problems(wanted.dataset, limit=wanted.limit, seed=wanted.seed)
    plan = _plan(wanted, problems)
    folder = (out or _new_folder(plan)).resolve()
    _bench(plan, folder, resume=False)
    return folder


def resume_bench(folder: Path, deployment: str | None) -> Path:
    """Continue the run in `folder` with what it was started with; its folder."""
    config = read_config(folder)
    wanted = Wanted(
        deployment or config["deployment_source"],
        config["dataset"],
        config["limit"],
        config["seed"],
        config["strategy"],
        config["schedule"],
        config["parameters"],
    )
    problems = load_problems(wanted.dataset, limit=wanted.limit, seed=wanted.seed)
    folder = folder.resolve()
    _bench(_plan(wanted, problems), folder, resume=True)
    return folder


def run_solve(question: str, wanted: Wanted, out: Path | None) -> None:
    """Solve one problem, drawing its tree, and print the answer."""
    plan = _plan(wanted, [Problem("solve", question)])
    folder = (out or _new_folder(plan)).resolve()
    tree = LiveTree(question)
    with _serving(plan.deployment) as (address, check), tree.shown():
        running = execute(
            plan,
            folder,
            address,
            on_node=lambda _, search: tree.node(search),
            on_judged=lambda solved, judged: tree.keep(solved.search, judged),
        )
        _interruptible(_watched(running, tree, check))
    tree.print_answer(plan.strategy.vote)
    say(f"run folder: {folder}")


def _plan(wanted: Wanted, problems: list[Problem]) -> Plan:
    """Check the strategy, the engines and every problem's length before anything starts."""
    strategy = find_strategy(wanted.strategy)
    spec = load_deployment(wanted.deployment)
    parameters = strategy.configure(wanted.parameters, context=spec.generator.max_seq_len)
    require_current(spec)
    models = Models.load(spec)
    return Plan(
        source=_findable(wanted.deployment),
        deployment=spec,
        deployment_digest=deployment_digest(spec),
        dataset=_findable(wanted.dataset),
        models=models,
        problems=tuple(Context.of(models, problem) for problem in problems),
        limit=wanted.limit,
        seed=wanted.seed,
        strategy=strategy,
        parameters=parameters,
        schedule=wanted.schedule,
    )


def _findable(name_or_file: str) -> str:
    """A name as it is, a file by its absolute path: found again from any folder."""
    file = Path(name_or_file).expanduser()
    return str(file.resolve()) if file.is_file() else name_or_file


def _new_folder(plan: Plan) -> Path:
    name = f"{datetime.now():%Y%m%d-%H%M%S}-{plan.deployment.name}-{plan.strategy.name}"
    folder = paths.runs_dir() / f"{name}-{plan.schedule}"
    taken = 1
    while folder.exists():
        taken += 1
        folder = folder.with_name(f"{name}-{plan.schedule}-{taken}")
    return folder


def _bench(plan: Plan, folder: Path, *, resume: bool) -> None:
    progress = Progress(len(plan.problems))
    bar = ProgressBar(progress)
    try:
        with _serving(plan.deployment) as (address, check), bar.shown():
            running = execute(plan, folder, address, resume=resume, progress=progress)
            _interruptible(_watched(running, bar, check))
    except TtsError as error:
        raise _with_way_on(error, folder, progress) from error


def _with_way_on(error: TtsError, folder: Path, progress: Progress) -> TtsError:
    """Add what is saved and how to continue, if the run had begun."""
    if not progress.began:
        return error
    saved = f"{progress.done} of {progress.total} problems are solved and saved in {folder}."
    way_on = f"Continue with: tts bench --resume {folder}"
    error.hint = "\n".join(part for part in (saved, error.hint, way_on) if part)
    return error


@contextlib.contextmanager
def _serving(deployment: Deployment) -> Iterator[tuple[str, Callable[[], None]]]:
    """Address and health check of the deployment's server: the one that answers, or a new one.

    A new one is stopped at the end of the block, whatever happens.
    """
    if found := find_server(deployment):
        say(f"Using {found}")
        yield found.addresses.grpc, observe(found).check
        return
    with start_server(deployment, say=say) as server:
        yield server.addresses.grpc, server.check


async def _watched(
    running: Coroutine[Any, Any, T], display: _Display, check: Callable[[], None]
) -> T:
    """Run to the end, drawing progress and checking the server's health on the way."""
    run = asyncio.ensure_future(running)
    checked_at = asyncio.get_running_loop().time()
    try:
        while not run.done():
            await asyncio.wait({run}, timeout=TICK_S)
            display.update()
            now = asyncio.get_running_loop().time()
            if now - checked_at > HEALTH_CHECK_S:
                checked_at = now
                check()
        return run.result()
    except EndpointError:
        check()  # says which process died, if one did; else the request's own error stands
        raise
    finally:
        run.cancel()
        await asyncio.wait({run})


def _interruptible(running: Coroutine[Any, Any, T]) -> T:
    """`asyncio.run` that turns the first Ctrl-C (or SIGTERM) into an orderly stop.

    Further ones are ignored: what remains is bounded (cancel requests, close the log, stop the
    server), and a cut-short clean-up would leave a server behind.
    """
    interrupted = False

    async def run() -> T:
        loop = asyncio.get_running_loop()
        task = asyncio.ensure_future(running)

        def interrupt() -> None:
            nonlocal interrupted
            if not interrupted:
                interrupted = True
                say("stopping ...")
                task.cancel()

        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, interrupt)
        return await task

    try:
        return asyncio.run(run())
    except asyncio.CancelledError:
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, signal.SIG_IGN)
        raise Interrupted("Interrupted.") from None
