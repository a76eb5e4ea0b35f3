"""A study in its folder: what was asked for, every run that follows from it, what they show.

| file | what |
|---|---|
| study.json | what was asked for; written once |
| runs/pilot | a short run that shows how long the others will take |
| runs/CELL-ROUND | a run folder for each cell in each round |
| load/tune.json | throughput over load of both engines, as `tts tune` keeps it |
| measurements.json | the rows of every figure, and the advice; written when all runs are finished |
| report.html | the page |
"""

from __future__ import annotations

import hashlib
import json
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from functools import cached_property
from pathlib import Path
from statistics import fmean
from typing import Literal

import msgspec

from tts.base.choices import ServerKind
from tts.base.errors import CheckpointError, DatasetError, RunError
from tts.base.user_paths import is_there
from tts.build.checkpoint import CHECKPOINT_FILES, file_sha256
from tts.build.spec import Deployment
from tts.build.started.memory import planned
from tts.datasets.load import load_problems
from tts.problem import Problem
from tts.prompting import Models
from tts.runs.files import refuse_link
from tts.runs.folder import (
    STUDY,
    Json,
    damaged,
    has_finished,
    read_json,
    refuse_begun,
    write_json,
    writing,
)
from tts.runs.summary import read_summary
from tts.serving.server.lookup import find_server
from tts.serving.server.started import services_of
from tts.session.plan import check_lengths
from tts.session.strategy import ChosenStrategy, choose

from ..tuning.tune import RESULT
from .cells import (
    MOST_PROBLEMS,
    Cell,
    CellRun,
    Form,
    cells_of,
    problems_of_rounds,
    problems_that_fit,
    steps_of,
)
from .kv_memory import PairMemory, generator_share, pair_memory

VERSION = 1

FigureRow = dict[str, str | int | float | bool | None]
"""A row of a table."""


@dataclass(frozen=True)
class StudyConfig:
    """The configuration of a study: study.json."""

    deployment: str
    deployment_source: str
    """What the user named it: a bundled name or a file."""
    deployment_digest: str
    """The digest of the served models; a later tts may serve the same file otherwise."""
    limits_digest: str
    """Both engines by the deployment file, and their checkpoints; see `limits_digest`."""
    dataset: str
    seed: int
    form: Form
    restarts: bool
    """Whether servers are started with other engines' limits; else one is used as it is."""
    server: ServerKind | None = None
    """What runs the engines; None: what the deployment says."""
    version: int = VERSION


@dataclass(frozen=True)
class Measurement:
    """The numbers of one figure, as measurements.json keeps them."""

    name: str
    """The name of the figure."""
    rows: Sequence[FigureRow]
    origin: Literal["measured", "modelled"] = "measured"
    """Measured on live engines; or computed: from the memory plan, or by putting the run's own
    requests through a model of the KV cache."""
    notes: Sequence[str] = field(default=())


def create_study(folder: Path, config: StudyConfig) -> None:
    """Keep what is asked for in a folder that holds no run and no study yet. Raises RunError."""
    if is_study(folder):
        raise RunError(
            f"{folder} already holds a study.",
            hint=f"Continue it with: tts study --resume {folder}, or name another folder with "
            "--out.",
        )
    refuse_begun(folder)
    write(folder / STUDY, asdict(config))


def is_study(folder: Path) -> bool:
    """Whether a folder holds a study."""
    return is_there(folder / STUDY)


def read_study(folder: Path) -> StudyConfig:
    """The configuration of the study in a folder; raises RunError."""
    data = read_json(folder / STUDY, f"{folder} holds no study")
    with writing(folder):
        for file in (load_file(folder), pilot_folder(folder)):
            refuse_link(file.parent)
    try:
        config = msgspec.convert(data, StudyConfig)
    except msgspec.ValidationError as error:
        raise damaged(folder / STUDY, error) from error
    if config.version > VERSION:
        raise RunError(
            f"{folder / STUDY} is of version {config.version}; this tts reads up to {VERSION}.",
            hint="Update tts.",
        )
    return config


def run_folder(folder: Path, step: CellRun) -> Path:
    """The folder of a cell's run in a round."""
    return folder / "runs" / step.folder


def pilot_folder(folder: Path) -> Path:
    """The folder of the first, short run."""
    return folder / "runs" / "pilot"


def load_file(folder: Path) -> Path:
    """The file of throughput over load."""
    return folder / "load" / RESULT


def measurements_file(folder: Path) -> Path:
    """The file of the figures' rows."""
    return folder / "measurements.json"


def write(file: Path, data: Json) -> None:
    """Keep what belongs to a study in one of its files; raises RunError."""
    with writing(file.parent):
        file.parent.mkdir(parents=True, exist_ok=True)
        write_json(file, data)


STRATEGY = "beam-search"


@dataclass(frozen=True)
class Study:
    """A study that is begun: what its folder says, and what follows from it."""

    folder: Path
    config: StudyConfig
    spec: Deployment
    memory: PairMemory
    problems: tuple[Problem, ...]
    """Enough for all rounds."""

    @cached_property
    def planned(self) -> Deployment:
        """The deployment with the pools that the plan gives to started engines."""
        return planned(self.spec)

    @property
    def n(self) -> int:
        """Completions per problem, where a cell does not change it."""
        return int(self.strategy().parameters["n"])

    def strategy(self, n: int | None = None) -> ChosenStrategy:
        """The search of a cell."""
        n = n or self.config.form.n
        return choose(STRATEGY, self.spec, {} if n is None else {"n": n})

    def cells(self, problems: int | None = None) -> list[Cell]:
        """The cells, where each of them has so many problems in a round."""
        restarts = self.config.restarts
        divides = restarts and self.memory.shared
        reuses = any(engine.kv_cache.reuse for engine in self.planned.engines().values())
        return cells_of(
            self.config.form,
            n=self.n,
            beam_width=int(self.strategy().parameters["beam_width"]),
            share=generator_share(self.spec, self.memory) if divides else None,
            reuse=restarts and reuses,
            problems=problems,
        )

    @property
    def unit_s(self) -> float:
        """Seconds that a unit of work took in the pilot, which must have finished."""
        summary = read_summary(pilot_folder(self.folder))
        return summary.wall_s / (summary.problems * self.n)

    def steps(self) -> tuple[list[CellRun], list[tuple[Problem, ...]]]:
        """Every run of the study, and each round's problems; after the pilot."""
        form = self.config.form
        fitting = problems_that_fit(form, self.cells(), self.unit_s)
        rounds = problems_of_rounds(self.problems, form.rounds, fitting)
        return steps_of(self.cells(len(rounds[0])), form.rounds), rounds


def open_study(folder: Path, config: StudyConfig, spec: Deployment) -> Study:
    """The study in a folder, or that will be there, with its problems; raises a TtsError."""
    form = config.form
    most = form.rounds * (form.problems or MOST_PROBLEMS)
    problems = tuple(load_problems(config.dataset, limit=most, seed=config.seed))
    if len(problems) < form.rounds:
        raise DatasetError(
            f"{config.dataset} holds {len(problems)} problems; the study has {form.rounds} rounds "
            "with problems of their own.",
            hint="Name a larger dataset.",
        )
    check_lengths(Models.load(spec), problems)
    return Study(folder, config, spec, pair_memory(spec), problems)


def is_finished(study: Study) -> bool:
    """Whether every run and the load are there."""
    if not has_finished(pilot_folder(study.folder)) or not is_there(load_file(study.folder)):
        return False
    return not remaining_of(study, study.steps()[0])


def can_restart(spec: Deployment) -> bool:
    """Whether engines can be started with other pools: on this CPU, with no server running."""
    if spec.target != "openvino":
        return False
    return all(find_server(service) is None for service in services_of(spec))


def limits_digest(spec: Deployment) -> str:
    """SHA-256 of both engines' sections of a deployment file, wherever their checkpoints are.

    For a checkpoint it covers the content of the files beside the weights; `deployment_digest`
    covers the weights. Raises CheckpointError.
    """
    engines = {
        role: {**engine.model_dump(mode="json"), "checkpoint": _content(engine.checkpoint)}
        for role, engine in planned(spec).engines().items()
    }
    return hashlib.sha256(json.dumps(engines, sort_keys=True).encode()).hexdigest()


def _content(checkpoint: Path) -> dict[str, str]:
    """The hashes of a checkpoint's files beside the weights, by name."""
    files = [checkpoint / name for name in CHECKPOINT_FILES]
    try:
        return {file.name: file_sha256(file) for file in files if file.is_file()}
    except OSError as error:
        raise CheckpointError(f"{checkpoint} cannot be read: {error}") from error


def remaining_of(study: Study, steps: Sequence[CellRun]) -> list[CellRun]:
    """The steps whose runs have not finished."""
    return [step for step in steps if not has_finished(run_folder(study.folder, step))]


def seconds_of(study: Study, steps: Sequence[CellRun]) -> dict[str, float]:
    """Mean seconds of the cells that ran already."""
    seconds: dict[str, list[float]] = defaultdict(list)
    for step in steps:
        if has_finished(where := run_folder(study.folder, step)):
            seconds[step.cell.name].append(read_summary(where).wall_s)
    return {name: fmean(each) for name, each in seconds.items()}
