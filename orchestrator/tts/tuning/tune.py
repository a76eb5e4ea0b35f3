"""What `tts tune` does, between the command line and the measurements."""

from __future__ import annotations

import difflib
import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn
from rich.text import Text

from tts.bench.request import Wanted, load_checked, plan_with, unused_folder
from tts.bench.run import Progress as RunProgress
from tts.bench.run import execute
from tts.bench.serving import interruptible, serving, watched
from tts.build.builder import require_current
from tts.build.deployment_edit import require_writable, with_values, write_values
from tts.build.errors import ConfigError, Interrupted, RunError
from tts.build.spec import Deployment, deployment_file
from tts.checks.requirements import require_gpu
from tts.datasets.load import load_problems
from tts.endpoints.triton import TritonConnection, TritonGenerator, TritonVerifier
from tts.prompting.context import Models
from tts.reports.console import consoles, say
from tts.reports.live_tree import ProgressBar
from tts.reports.tuning import engine_table, proposal_sentence
from tts.runlog.folder import CONFIG, cannot_write, read_config, write_json
from tts.runlog.log import read_events
from tts.strategies.catalog import find_strategy
from tts.strategies.parameters import configure

from .analysis import FIELDS, UNITS, Proposal, knee, levels, propose
from .fit import RESULT
from .measure import ROUNDS, Measured, measure
from .requests import Recorded, recorded_requests
from .result import to_json
from .workload import loadable_generator, loadable_verifier

PROBLEMS = 8  # of the short run
LEAST_REQUESTS = 16


def run_tune(
    deployment: str,
    run: Path | None,
    dataset: str,
    seconds: float,
    out: Path | None,
    *,
    write: bool,
) -> None:
    """Measure both engines, print and save what was found, and write the policy if asked."""
    spec = load_checked(deployment)
    file = deployment_file(deployment)
    if write:
        require_writable(file)
    require_gpu(spec)
    require_current(spec)
    folder = (out or unused_folder(f"{spec.name}-tune")).resolve()
    if (folder / RESULT).exists():
        raise RunError(f"{folder} already holds a tune result.", hint="Name another with --out.")
    recorded = _read(run, spec) if run else None
    measured: list[Measured] = []
    try:
        with serving(spec) as (address, check):
            if recorded is None:
                run = folder / "run"
                _record(deployment, spec, dataset, run, address, check)
                recorded = _read(run, spec)
            say(
                f"Replaying {len(recorded.generations):,} generator and "
                f"{len(recorded.scorings):,} verifier requests of {run}"
            )
            _measure(spec, recorded, seconds, measured, address, check)
    except Interrupted:
        if recorded and any(engine.samples for engine in measured):
            _report(spec, recorded, str(run), measured, folder)
        raise
    proposals = _report(spec, recorded, str(run), measured, folder)
    _show_change(deployment, file, proposals, write=write)


def _record(
    deployment: str,
    spec: Deployment,
    dataset: str,
    folder: Path,
    address: str,
    check: Callable[[], None],
) -> None:
    """A short run, whose requests are then measured."""
    strategy = find_strategy("beam-search")
    problems = load_problems(dataset, limit=PROBLEMS)
    wanted = Wanted(deployment, dataset, PROBLEMS, 0, strategy.name, "decoupled", {})
    plan = plan_with(wanted, problems, spec, strategy, configure(strategy, spec, {}))
    say(f"Recording a run of {len(problems)} problems")
    progress = RunProgress(len(problems))
    bar = ProgressBar(progress, "recording")
    with bar.shown():
        interruptible(watched(execute(plan, folder, address, progress=progress), bar, check))


def _read(run: Path, spec: Deployment) -> Recorded:
    """The requests of a run of this deployment; raises RunError."""
    config = read_config(run)
    if config["deployment"] != spec.name:
        raise RunError(
            f"The run in {run} is one of {config['deployment']!r}, not of {spec.name!r}.",
            hint="Token ids and lengths are another model's: name a run of this deployment, or "
            "leave --run out to make one.",
        )
    problems = {
        problem.id: problem
        for problem in load_problems(config["dataset"], limit=config["limit"], seed=config["seed"])
    }
    asked = config["problem_ids"]
    if missing := set(asked) - set(problems):
        raise RunError(f"{run / CONFIG}: {config['dataset']} no longer holds {min(missing)!r}.")
    recorded = recorded_requests(
        Models.load(spec), [problems[name] for name in asked], config, read_events(run)
    )
    for role, requests in (("generator", recorded.generations), ("verifier", recorded.scorings)):
        if len(requests) < LEAST_REQUESTS:
            raise RunError(
                f"The run in {run} holds {len(requests)} requests to the {role}; "
                f"at least {LEAST_REQUESTS} are needed.",
                hint="Record one with: tts bench DEPLOYMENT --strategy beam-search",
            )
    return recorded


def _measure(
    spec: Deployment,
    recorded: Recorded,
    seconds: float,
    into: list[Measured],
    address: str,
    check: Callable[[], None],
) -> None:
    bar = _LoadBar()

    async def both() -> None:
        async with TritonConnection(address) as connection:
            models = Models.load(spec)
            generator = TritonGenerator(
                connection,
                end_id=models.end_id,
                step_stop_words=models.step_stop_words,
                end_stop_words=models.end_stop_words,
            )
            # dialogues must differ from those of earlier measurements on the same server
            first = random.randrange(1 << 20)
            for engine in (
                loadable_generator(generator, recorded, spec),
                loadable_verifier(TritonVerifier(connection), recorded, spec),
            ):
                into.append(Measured(engine.role, engine.holds))
                bar.start(into[-1], len(engine.loads))
                await measure(engine, seconds / 2, into[-1], first=first, on_load=bar.at)

    with bar.shown():
        interruptible(watched(both(), bar, check))


class _LoadBar:
    """Which load of which engine is being measured."""

    def __init__(self) -> None:
        _, self._console = consoles()
        self._bar = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            TextColumn("{task.fields[state]}"),
            TimeElapsedColumn(),
            console=self._console,
            transient=True,
        )
        self._task = self._bar.add_task("", state="")
        self._unit = ""

    @contextmanager
    def shown(self) -> Iterator[None]:
        """Draw while the block runs, if there is a terminal."""
        if not self._console.is_terminal:
            yield
            return
        with self._bar:
            yield

    def start(self, engine: Measured, loads: int) -> None:
        """An engine's measurements begin."""
        self._unit = UNITS[engine.role]
        self._bar.reset(self._task, description=engine.role, total=loads * (ROUNDS + 1))
        if not self._console.is_terminal:
            say(f"Measuring the {engine.role}")

    def at(self, load: int, round_: int) -> None:
        """A measurement begins."""
        state = f"{load:,} {self._unit} in flight, " + (
            f"round {round_} of {ROUNDS}" if round_ else "warm-up"
        )
        self._bar.update(self._task, advance=1, state=state)

    def update(self) -> None:
        """Nothing changes between measurements but the clock, which the bar draws by itself."""


def _report(
    spec: Deployment, recorded: Recorded, source: str, measured: list[Measured], folder: Path
) -> list[Proposal]:
    """Print the tables, keep the numbers; what follows for engines with enough of them."""
    out, _ = consoles()
    proposals = []
    for engine in measured:
        found = levels(engine.samples)
        if len(found) < 2:
            say(f"{engine.role}: too few measurements in this time; give more with --seconds")
            continue
        bend = knee(engine.samples)
        proposals.append(propose(engine.role, bend, engine.holds, spec))
        out.print()
        out.print(engine_table(engine.role, found, bend))
    try:
        folder.mkdir(parents=True, exist_ok=True)
        write_json(folder / RESULT, to_json(spec, source, recorded, measured, proposals))
    except OSError as error:
        raise cannot_write(folder, error) from error
    if proposals:
        out.print()
        for proposal in proposals:
            out.print(proposal_sentence(proposal), markup=False, soft_wrap=True)
    out.print(f"result: {folder / RESULT}", style="dim", markup=False, soft_wrap=True)
    return proposals


def _show_change(deployment: str, file: Path, proposals: list[Proposal], *, write: bool) -> None:
    """The change to the deployment file as a diff; made if asked for."""
    out, _ = consoles()
    values = {FIELDS[p.role]: p.value for p in proposals if p.value != p.present}
    if not values:
        if proposals:
            out.print("The deployment file says so already.")
        return
    try:
        before = file.read_bytes().decode()
    except OSError as error:
        raise ConfigError(f"Cannot read the deployment file {file}: {error}") from error
    after = with_values(before, values)
    lines = difflib.unified_diff(
        before.splitlines(), after.splitlines(), str(file), str(file), n=1, lineterm=""
    )
    out.print()
    for line in lines:
        style = {"+": "green", "-": "red", "@": "cyan"}.get(line[:1], "")
        out.print(Text(line, style), soft_wrap=True)
    if write:
        write_values(file, values)
        out.print(f"Written to {file}", markup=False, soft_wrap=True)
    else:
        out.print("--write makes this change.", markup=False, soft_wrap=True)
