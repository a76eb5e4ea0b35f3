"""Problems by dataset name or from a file.

A name is `demo`, that of a pinned dataset, that of a plug-in, or OWNER/NAME on the Hugging Face hub
(both in `hub`). The entry point of a plug-in, in the group `tts.datasets`, refers to a function
`(limit: int | None, seed: int) -> Iterable[Problem]`.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, replace
from importlib.metadata import EntryPoint
from pathlib import Path

from tts.base.choices import AnswerKind
from tts.base.errors import DatasetError, did_you_mean
from tts.base.input_files import Unreadable, is_file, require_path
from tts.base.user_paths import is_there
from tts.plugins import PluginGroup
from tts.problem import Problem, digest_of

from .demo import demo_problems
from .files import read_files
from .hub import BRANCH, KNOWN, HubName, folder_files, hub_files, known_file
from .options import DatasetOptions, draw_by_level
from .rows import Columns

PLUGINS = PluginGroup("tts.datasets", "dataset")
DEFAULT_DEMO_COUNT = 100
MAX_DEMO_COUNT = 100_000
"""Most demo problems: they are made in seconds, kept in memory, and must all differ."""


@dataclass(frozen=True)
class Dataset:
    """Problems, and where they come from."""

    problems: list[Problem]
    source: str = ""
    """The file, how many of its problems, and what was read from which column; else empty."""
    digest: str = ""
    """The digest of the problems before a shard was taken of them (`tts.problem.digest_of`)."""


def load_problems(
    dataset: str,
    *,
    limit: int | None = None,
    seed: int = 0,
    columns: Columns | None = None,
    answers: AnswerKind | None = None,
    per_level: int | None = None,
) -> list[Problem]:
    """The problems of a dataset, in order; `load_dataset` with its options one by one."""
    options = DatasetOptions(seed, columns or {}, answers, per_level)
    return load_dataset(dataset, limit=limit, options=options).problems


def load_dataset(
    dataset: str,
    *,
    limit: int | None = None,
    options: DatasetOptions | None = None,
    say: Callable[[str], None] = lambda line: None,
) -> Dataset:
    """The problems of a dataset: generated, downloaded, a plug-in's or a file's.

    `demo` generates held-out problems from the seed of `options`. A known dataset, or one of the
    hub, is downloaded once, and `say` gets a line on it. One of the hub, or a file (`rows`), has
    columns `problem` or `question`, `answer`, optional `unique_id` or `id`, and optional `level`,
    unless `options` names others. The whole file is checked, whatever the limit. Raises
    DatasetError naming the file and line.
    """
    options = options or DatasetOptions()
    whole = _load(dataset, limit, options, say)
    whole = replace(whole, digest=digest_of(whole.problems))
    if options.shard is None:
        return whole
    part = options.shard.of(whole.problems)
    if not part:
        raise DatasetError(
            f"Shard {options.shard} of {len(whole.problems)} problems is empty.",
            hint="Split them into no more shards than there are problems.",
        )
    source = f"shard {options.shard}: {len(part):,} of {len(whole.problems):,} problems"
    return replace(whole, problems=part, source=source)


def _load(
    dataset: str,
    limit: int | None,
    options: DatasetOptions,
    say: Callable[[str], None],
) -> Dataset:
    """The problems of a dataset, before a shard is taken of them."""
    if limit is not None and limit < 1:
        raise DatasetError(f"The limit is {limit}; it must be at least 1.")
    of_each = options.per_level
    most = None if limit is None else (options.start or 0) + limit
    if dataset == "demo":
        _refuse_layout(options, "demo")
        return Dataset(_take(_demo(most, of_each, options.seed), limit, options))
    try:
        require_path(dataset)
    except Unreadable as error:
        raise DatasetError(f"{dataset!r:.100} names no dataset: {error}.") from error
    file = Path(dataset).expanduser()
    if is_file(file):
        problems, reading = read_files([file], file.stem, options.columns, options.answers)
    elif plugin := PLUGINS.find(dataset):
        _refuse_layout(options, dataset)
        own = _from_plugin(plugin, None if of_each else most, options.seed)
        return Dataset(_take(own, limit, options))
    elif source := KNOWN.get(dataset):
        _refuse_layout(options, dataset)
        files = [known_file(dataset, source, say)]
        problems, reading = read_files(files, dataset, source.columns, source.answers)
    elif cloned := folder_files(dataset):
        folder, files = cloned
        problems, reading = read_files(
            files, folder.resolve().name, options.columns, options.answers
        )
        reading = f"{', '.join(each.relative_to(folder).as_posix() for each in files)}; {reading}"
    elif (name := HubName.parse(dataset)) and not file.exists():
        download = hub_files(name, say)
        stem = name.repo.partition("/")[2]
        problems, reading = read_files(download.files, stem, options.columns, options.answers)
        reading += f"; commit {download.commit} of {BRANCH}"
    else:
        raise _no_dataset(dataset, file)
    part = _take(problems, limit, options)
    return Dataset(part, f"{dataset}: {len(part):,} of {len(problems):,} problems; {reading}")


def _take(problems: list[Problem], limit: int | None, options: DatasetOptions) -> list[Problem]:
    if options.per_level:
        problems = draw_by_level(problems, options.per_level, options.seed)
    start = options.start or 0
    if start >= len(problems):
        raise DatasetError(
            f"The first problem is to be number {start:,}, and there are {len(problems):,}.",
            hint="They are counted from 0.",
        )
    return problems[start:][:limit]


def _demo(limit: int | None, per_level: int | None, seed: int) -> list[Problem]:
    """The demo problems that are asked for; they cycle through the levels."""
    count = 5 * per_level if per_level else limit or DEFAULT_DEMO_COUNT
    if count > MAX_DEMO_COUNT:
        raise DatasetError(
            f"The limit is {count:,}; dataset demo has at most {MAX_DEMO_COUNT:,} problems."
        )
    return demo_problems(count, seed)


def _refuse_layout(options: DatasetOptions, dataset: str) -> None:
    if options.columns or options.answers:
        raise DatasetError(
            f"Dataset {dataset} knows its columns and answers.",
            hint="Leave --columns and --answers out; they are for files.",
        )


def _no_dataset(dataset: str, file: Path) -> DatasetError:
    if is_there(file):
        return DatasetError(
            f"{file} is a pipe or a device, not a dataset file.",
            hint="Save it as a JSONL file: the file is read again when a run is resumed.",
        )
    names = ["demo", *KNOWN, *PLUGINS.names()]
    return DatasetError(
        f"There is no dataset {dataset!r}: neither a file nor a known name.",
        hint=f"{did_you_mean(dataset, names)}Known names: {', '.join(names)}. OWNER/NAME is a "
        "dataset of the Hugging Face hub. A file is JSONL, JSON, CSV or Parquet with a problem and "
        "an answer in each row; --columns says where they are. A folder is a clone of the hub's.",
    )


def _from_plugin(plugin: EntryPoint, limit: int | None, seed: int) -> list[Problem]:
    load = PLUGINS.load(plugin)
    try:
        problems = list(itertools.islice(load(limit, seed), limit))
    except Exception as error:
        raise PLUGINS.broken(plugin, error) from error
    if not problems or not all(isinstance(problem, Problem) for problem in problems):
        strange = next((each for each in problems if not isinstance(each, Problem)), "none")
        raise DatasetError(
            f"{PLUGINS.describe(plugin)} must give problems, not {strange!r:.60}.",
            hint="Its function takes (limit, seed) and returns tts.problem.Problem objects.",
        )
    if repeated := [name for name, count in Counter(p.id for p in problems).items() if count > 1]:
        raise DatasetError(
            f"{PLUGINS.describe(plugin)} gives several problems the id {repeated[0]!r}; ids must "
            "be unique."
        )
    return problems
