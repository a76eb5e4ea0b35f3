"""The folder of a study: what was asked for, its runs, what they show.

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

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Literal

import msgspec

from tts.base.choices import ServerKind
from tts.base.errors import RunError
from tts.base.user_paths import is_there
from tts.runs.files import refuse_link
from tts.runs.folder import STUDY, Json, damaged, read_json, refuse_begun, write_json, writing

from ..tuning.tune_file import RESULT
from .cells import CellRun, Form

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
    """Both engines by the deployment file, and their checkpoints; see study_plan."""
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
