"""Problems by dataset name or from a JSONL file.

A name is `demo`, or that of a plug-in: an entry point of the group `tts.datasets` refers to a
function `(limit: int | None, seed: int) -> Iterable[Problem]`.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterator, Mapping
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import Any

from tts.build.errors import DatasetError, RunError
from tts.build.input_files import Unreadable, as_text, is_file, parse_json, require_path
from tts.grading import extract_gsm8k_answer
from tts.plugins import PluginGroup
from tts.problem import Problem
from tts.runlog.folder import PROBLEMS, read_problems

from .demo import demo_problems

PLUGINS = PluginGroup("tts.datasets", "dataset")
DEFAULT_DEMO_COUNT = 100
MAX_DEMO_COUNT = 100_000
"""Generated in seconds; each is kept in memory, and as many must differ."""
MAX_LINE_BYTES = 1_000_000
"""Of a dataset file: one problem."""


def load_problems(dataset: str, *, limit: int | None = None, seed: int = 0) -> list[Problem]:
    """The problems of a dataset, in order.

    `demo` generates held-out problems from `seed`, an installed dataset gives its own; anything
    else is a JSONL file, one object per line: `problem` or `question`, `answer` (GSM8K's
    `... #### 18` is understood), optional `unique_id` or `id`, optional `level`. The whole file is
    checked, whatever the limit. Raises DatasetError naming the file and line.
    """
    if limit is not None and limit < 1:
        raise DatasetError(f"The limit is {limit}; it must be at least 1.")
    if dataset == "demo":
        if limit is not None and limit > MAX_DEMO_COUNT:
            raise DatasetError(
                f"The limit is {limit:,}; dataset demo has at most {MAX_DEMO_COUNT:,} problems."
            )
        generated = demo_problems(limit or DEFAULT_DEMO_COUNT, seed)
        return [Problem(p.id, p.question, p.answer, p.level) for p in generated]
    try:
        require_path(dataset)
    except Unreadable as error:
        raise DatasetError(f"{dataset!r:.100} names no dataset: {error}.") from error
    file = Path(dataset).expanduser()
    if is_file(file):
        problems = list(_read(file))
        if not problems:
            raise DatasetError(f"{file} holds no problems.")
        return problems[:limit]
    if plugin := PLUGINS.find(dataset):
        return _from_plugin(plugin, limit, seed)
    if file.exists():
        kind = "a folder" if file.is_dir() else "a pipe or a device"
        raise DatasetError(
            f"{file} is {kind}, not a dataset file.",
            hint="Save it as a JSONL file: the file is read again when a run is resumed.",
        )
    raise DatasetError(
        f"There is no dataset {dataset!r}: neither a file nor a known name.",
        hint=f"Known names: {', '.join(['demo', *PLUGINS.names()])}. A file must be JSONL with "
        "problem and answer in each line.",
    )


def _from_plugin(plugin: EntryPoint, limit: int | None, seed: int) -> list[Problem]:
    load = PLUGINS.load(plugin)
    try:
        given = list(itertools.islice(load(limit, seed), limit))
    except Exception as error:
        raise PLUGINS.broken(plugin, error) from error
    if not given or not all(isinstance(problem, Problem) for problem in given):
        strange = next((each for each in given if not isinstance(each, Problem)), "none")
        raise DatasetError(
            f"{PLUGINS.describe(plugin)} must give problems, not {strange!r:.60}.",
            hint="Its function takes (limit, seed) and returns tts.problem.Problem objects.",
        )
    if repeated := [name for name, count in Counter(p.id for p in given).items() if count > 1]:
        raise DatasetError(
            f"{PLUGINS.describe(plugin)} gives several problems the id {repeated[0]!r}; ids must "
            "be unique."
        )
    return given


def problems_of_run(folder: Path, config: Mapping[str, Any]) -> list[Problem]:
    """The problems of a recorded run: its folder's own, else its dataset's; `config` is run.json.

    Raises RunError or DatasetError.
    """
    if config["dataset"] != PROBLEMS:
        return load_problems(config["dataset"], limit=config["limit"], seed=config["seed"])
    problems = read_problems(folder)
    if not problems:
        raise RunError(
            f"The run in {folder} does not hold its problems ({PROBLEMS} is missing).",
            hint="Bring that file back: no dataset has these problems.",
        )
    return problems


def _read(file: Path) -> Iterator[Problem]:
    seen: dict[str, int] = {}
    for number, line in _lines(file):
        where = f"{file}, line {number}"
        problem = _parse(line, where, f"{file.stem}:{number}")
        if problem.id in seen:
            raise DatasetError(
                f"{where}: id {problem.id!r:.200} was used in line {seen[problem.id]} already; ids "
                "must be unique."
            )
        seen[problem.id] = number
        yield problem


def _lines(file: Path) -> Iterator[tuple[int, bytes]]:
    """The lines that are not blank, with their numbers from 1; raises DatasetError."""
    try:
        with file.open("rb") as stream:
            number = 0
            while line := stream.readline(MAX_LINE_BYTES + 1):
                number += 1
                if len(line) > MAX_LINE_BYTES:
                    raise DatasetError(
                        f"{file}, line {number} has more than {MAX_LINE_BYTES:,} bytes.",
                        hint="A line is one problem. Is this a JSONL file?",
                    )
                if line.strip():
                    yield number, line
    except OSError as error:
        raise DatasetError(f"{file} cannot be read: {error.strerror or error}") from error


def _parse(line: bytes, where: str, default_id: str) -> Problem:
    try:
        data = parse_json(as_text(line), strict=True)
    except Unreadable as error:
        raise DatasetError(f"{where} cannot be read: {error}.") from error
    if not isinstance(data, dict):
        raise DatasetError(f"{where} must hold a JSON object, not {type(data).__name__}.")
    question = _text(data, ("problem", "question"), where)
    answer = _text(data, ("answer",), where)
    level = data.get("level")
    if isinstance(level, bool) or not isinstance(level, int | str | None):
        raise DatasetError(f"{where}: level is {level!r:.200}; it must be a number or a text.")
    identity = _id(data, where) or default_id
    return Problem(identity, question, extract_gsm8k_answer(answer) or answer, level)


def _id(data: dict[str, Any], where: str) -> str | None:
    """What a problem is called in its file; None where it has no name."""
    for name in ("unique_id", "id"):
        value = data.get(name)
        if isinstance(value, bool) or not isinstance(value, int | float | str | None):
            raise DatasetError(f"{where}: {name} is {value!r:.200}; it must be a text or a number.")
        if value is not None and str(value).strip():
            return str(value)
    return None


def _text(data: dict[str, Any], names: tuple[str, ...], where: str) -> str:
    for name in names:
        if name in data:
            value = data[name]
            if isinstance(value, int | float) and not isinstance(value, bool):
                value = str(value)
            if not isinstance(value, str) or not value.strip():
                raise DatasetError(f"{where}: {name} is {value!r:.200}; it must be a text.")
            return value
    fields = ", ".join(sorted(data)) or "no fields"
    raise DatasetError(
        f"{where} lacks the field {' or '.join(map(repr, names))}; it has {fields:.500}."
    )
