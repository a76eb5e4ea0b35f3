"""Folders of several runs: a group that is compared, and the list of the runs in a folder.

A group is a folder with `group.json` and a folder for each run. No log of a finished run is read
whole for the list.
"""

from __future__ import annotations

import mmap
import re
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal

import msgspec

from tts.base.errors import RunDamaged, RunError, TtsError, WrongFolder
from tts.base.user_paths import is_closed, is_folder, is_there

from .config import CIRCUMSTANCES, RunConfig, parse_config
from .files import open_file
from .folder import (
    CONFIG,
    EVENTS,
    GROUP,
    SUMMARY,
    Json,
    create_folder,
    damaged,
    has_begun,
    has_finished,
    is_worked_on,
    read_config,
    read_json,
    write_json,
    writing,
)
from .log import first_session
from .summary import read_summary

COMPARISON = "comparison.json"
_PLAIN_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.,=-]{0,99}")
_OWN = ("strategy", "vote", "parameters")
"""The fields of a run that those of a group do not share."""


@dataclass(frozen=True)
class Member:
    """One run of a group: its folder's name, its parameters, and who shares it.

    `votes` maps the strategies that are this very search to their votes; the first one is the one
    that the run is made as.
    """

    folder: str
    votes: dict[str, str]
    parameters: dict[str, Any]

    @property
    def strategy(self) -> str:
        """The strategy that the run is made as."""
        return next(iter(self.votes))

    @property
    def point(self) -> str:
        """What a sweep has set, as the folder's name says it: `, n=4`; else empty."""
        return "".join(f", {each}" for each in self.folder.split(",")[1:])

    @property
    def title(self) -> str:
        """The strategies that share the run, and what a sweep has set."""
        return " and ".join(self.votes) + self.point


@dataclass(frozen=True)
class GroupConfig:
    """The configuration of a group of runs: group.json."""

    shared: RunConfig
    """The configuration of all runs; its search is that of the first member."""
    members: list[Member]

    def to_json(self) -> Json:
        """The content of group.json: what the runs share, and each run."""
        shared = self.shared.to_json().items()
        return {name: value for name, value in shared if name not in _OWN} | {
            "runs": [asdict(member) for member in self.members]
        }


def create_group(folder: Path, config: Json) -> None:
    """Make a group folder; it must hold neither a run nor a group yet. Raises RunError."""
    create_folder(folder, GROUP, config)


def is_group(folder: Path) -> bool:
    """Whether a folder holds a group."""
    return is_there(folder / GROUP)


def read_group(folder: Path) -> tuple[Json, list[Member]]:
    """The configuration of a group, and its runs; raises RunError."""
    config = read_json(folder / GROUP, f"{folder} holds no group of runs")
    try:
        members = msgspec.convert(config.get("runs"), list[Member])
    except msgspec.ValidationError as error:
        raise damaged(folder / GROUP, f"its runs: {error}") from error
    for member in members:
        if not _PLAIN_NAME.fullmatch(member.folder):
            raise damaged(folder / GROUP, f"{member.folder!r:.100} is no plain name of a run in it")
    return config, members


def read_whole_group(folder: Path) -> GroupConfig:
    """A group's configuration, with every field that continuing it needs; raises RunError."""
    file = folder / GROUP
    config, members = read_group(folder)
    shared = {name: value for name, value in config.items() if name != "runs"}
    first = (
        {"strategy": members[0].strategy, "parameters": members[0].parameters} if members else {}
    )
    whole = parse_config(shared | first, file, lacks=_OWN)
    if not members:
        raise damaged(file, "Expected `array` of length >= 1 - at `$.runs`")
    return GroupConfig(whole, members)


def read_members(folder: Path) -> list[Member]:
    """The runs of a group, checked to be those that group.json names; raises RunError.

    Raises RunDamaged for a run of another group, or of another of its searches, in a folder.
    """
    config, members = read_group(folder)
    shared = {name: value for name, value in config.items() if name != "runs"}
    for member in members:
        if not has_begun(folder / member.folder):
            continue
        expected = {**shared, "strategy": member.strategy, "parameters": member.parameters}
        actual = read_config(folder / member.folder)
        for name, value in expected.items():
            # a strategy that takes a budget has the one to which the others' n is fitted;
            # each has its own strategy's function, whose file may have changed before it was begun
            if (
                name not in (*CIRCUMSTANCES, "limits", "sources", "functions")
                and actual.get(name) != value
            ):
                raise RunDamaged(
                    f"{folder / member.folder} is not the run that {folder / GROUP} names: its "
                    f"{name} is {actual.get(name)!r:.200} instead of {value!r:.200}.",
                    hint="Bring the right folder back.",
                )
    return members


def runs_in(folder: Path) -> list[tuple[Path, dict[str, str]]]:
    """The begun runs that a folder stands for, each with the votes that its group takes of it.

    They are those of a group, or of a folder with runs and groups in it; else it is the run itself.
    A run that is not of a group has its own vote alone, which is left out. Raises RunError.
    """
    if is_group(folder):
        members = [(folder / member.folder, member.votes) for member in read_members(folder)]
        return [each for each in members if is_there(each[0] / EVENTS) or has_finished(each[0])]
    below: list[tuple[Path, dict[str, str]]] = []
    if is_folder(folder) and not _is_recorded(folder):
        for each in sorted(folder.iterdir()):
            if not is_closed(each) and (has_begun(each) or is_group(each)):
                below += runs_in(each)
    return below or [(folder, {})]


def write_comparison(folder: Path, data: Json) -> None:
    """Keep the numbers of a group's tables; raises RunError."""
    with writing(folder):
        write_json(folder / COMPARISON, data)


State = Literal["finished", "interrupted", "running", "damaged"]
"""interrupted: not finished, and no process works on it."""

_SOLVED = re.compile(rb'"event": ?"problem_solved"')
"""Only events have it: within a text quotes are escaped."""


@dataclass(frozen=True, kw_only=True)
class ListedRun:
    """A recorded run in a few words. For a damaged run, everything that cannot be read is null."""

    name: str
    """Its folder's name; of a run in a comparison behind that of the comparison's folder."""
    folder: str
    began: str | None
    """When it was started (ISO 8601, UTC)."""
    state: State
    deployment: str | None = None
    dataset: str | None = None
    strategy: str | None = None
    verifier: str | None = None
    """The function that scored, or the format of the deployment's verifier."""
    schedule: str | None = None
    n: int | None = None
    """Completions of a problem."""
    problems_done: int | None = None
    problems: int | None = None
    accuracy: float | None = None
    """Share of the judged problems that are right; null until the run has finished."""
    damage: str | None = None
    """Why the state is `damaged`."""


def list_runs(folder: Path) -> list[ListedRun]:
    """The runs in a folder, those of comparisons included, newest first.

    A folder that is a run, or a comparison, lists itself. Raises RunError if there is no folder.
    """
    if not is_folder(folder):
        raise WrongFolder(
            f"There is no folder {folder}.", hint="Name a folder in which runs were recorded."
        )
    if _is_recorded(folder):
        runs = list(_listed(folder, folder.resolve().name))
    else:
        runs = [
            run
            for below in folder.iterdir()
            if not is_closed(below)
            for run in _listed(below, below.name)
        ]
    return sorted(runs, key=lambda run: (run.began or "", run.name), reverse=True)


def _is_recorded(folder: Path) -> bool:
    """Whether a folder holds a run or a comparison, or what is left of one."""
    return any(is_there(folder / name) for name in (CONFIG, GROUP, EVENTS, SUMMARY))


def _listed(folder: Path, name: str) -> Iterator[ListedRun]:
    try:
        if not (is_folder(folder) and _is_recorded(folder)):
            return
        if not is_group(folder):
            yield _run(folder, name)
            return
        members = [folder / member.folder for member in read_group(folder)[1]]
    except TtsError as error:
        yield _damaged(folder, name, error)
        return
    runs = [member for member in members if has_begun(member)]
    for member in runs:
        yield _run(member, f"{name}/{member.name}")
    if not runs:
        state: State = "running" if is_worked_on(folder) else "interrupted"
        yield ListedRun(name=name, folder=str(folder), began=_began(folder), state=state)


def _run(folder: Path, name: str) -> ListedRun:
    try:
        config = parse_config(read_config(folder), folder / CONFIG)
        finished = read_summary(folder) if has_finished(folder) else None
        began = _time_of(folder)
        problems = solved(folder) if finished is None else finished.problems
    except TtsError as error:
        return _damaged(folder, name, error)
    if finished:
        state: State = "finished"
    else:
        state = "running" if is_worked_on(folder) else "interrupted"
    return ListedRun(
        name=name,
        folder=str(folder),
        began=began,
        state=state,
        deployment=config.deployment,
        dataset=config.dataset,
        strategy=config.strategy,
        verifier=_verifier(config),
        schedule=config.schedule,
        n=n if isinstance(n := config.parameters.get("n"), int) else None,
        problems_done=min(problems, len(config.problem_ids)),
        problems=len(config.problem_ids),
        accuracy=finished.accuracy if finished else None,
    )


def _verifier(config: RunConfig) -> str | None:
    if source := config.sources.get("verifier"):
        return f"{Path(source.file).name}:{source.name}"
    return config.functions.get("verifier") or config.prompting.get("verifier", {}).get("format")


def solved(folder: Path) -> int:
    """Problems that a run's log shows as solved, counted without decoding its lines."""
    log = folder / EVENTS
    try:
        with open_file(log) as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as text:
            return sum(1 for _ in _SOLVED.finditer(text))
    except (FileNotFoundError, ValueError):  # there is none yet, or nothing in it
        return 0
    except OSError as error:
        raise RunError(f"{log} cannot be read: {error.strerror or error}.") from error


def _damaged(folder: Path, name: str, error: TtsError) -> ListedRun:
    return ListedRun(
        name=name, folder=str(folder), began=_began(folder), state="damaged", damage=error.message
    )


def _time_of(folder: Path) -> str | None:
    """When the first session of a run began, by its log, or by run.json; raises RunError."""
    first = first_session(folder) if is_there(folder / EVENTS) else None
    if first is None:
        return _began(folder)
    try:
        return _iso(first.began)
    except ValueError as error:
        raise RunDamaged(f"{folder / EVENTS}: {error}.") from error


def _began(folder: Path) -> str | None:
    """When the file that is written first was written; None if there is none."""
    for name in (CONFIG, GROUP, EVENTS):
        with suppress(OSError, OverflowError, ValueError):
            return _iso(datetime.fromtimestamp((folder / name).lstat().st_mtime, UTC))
    return None


def _iso(time: datetime) -> str:
    return time.astimezone(UTC).isoformat(timespec="seconds")


def short_names(folders: Sequence[Path]) -> list[str]:
    """The ends of the folders' paths, as much of each as tells them apart."""
    paths = [folder.resolve().parts for folder in folders]
    deepest = max(map(len, paths), default=1)
    for depth in range(1, deepest):
        names = ["/".join(parts[-depth:]) for parts in paths]
        if len(set(names)) == len(set(paths)):
            return names
    return [str(folder) for folder in folders]
