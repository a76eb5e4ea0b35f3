"""`tts merge`: the runs of a benchmark's shards as the one run that they are parts of."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec

from tts.build.errors import RunError
from tts.datasets.options import Shard, interleaved
from tts.runs.checks import check_complete, write_summary
from tts.runs.config import RunConfig, read_run_config
from tts.runs.folder import create_run, has_finished
from tts.runs.lock import locked
from tts.runs.log import read_events
from tts.runs.merge import write_merged
from tts.runs.summary import summarise

_OF_A_SHARD = {"shard", "problem_ids", "deployment_source"}
"""What shards of one run do not share: each may name the deployment as its machine does."""


@dataclass(frozen=True)
class _Part:
    folder: Path
    shard: Shard
    config: RunConfig


def merge_runs(folders: Sequence[Path], out: Path) -> Path:
    """Make one run folder of finished shards; its trees, answers and digest are the whole run's.

    Raises RunError: for what is no shard, has not finished or is of another configuration, and for
    shards that are missing or there twice.
    """
    parts = _whole(sorted(map(_read, folders), key=lambda part: part.shard.number))
    problem_ids = interleaved([part.config.problem_ids for part in parts])
    if problem_ids is None or len(set(problem_ids)) < len(problem_ids):
        raise RunError(
            "The shards' problems do not fit together: they are not parts of one dataset.",
            hint="Run all of them with the same dataset, --limit and --dataset-seed.",
        )
    whole = msgspec.structs.replace(parts[0].config, shard=None, problem_ids=problem_ids)
    config = whole.to_json()
    out = out.resolve()
    with locked(out):
        create_run(out, config)
        write_merged(out, {f"shard {part.shard}": part.folder for part in parts})
        write_summary(out, summarise(config, read_events(out)))
    return out


def _read(folder: Path) -> _Part:
    config = read_run_config(folder)
    if config.shard is None:
        raise RunError(
            f"{folder} is no shard of a run.",
            hint="Only runs of tts bench --shard i/N can be merged.",
        )
    if not has_finished(folder):
        raise RunError(
            f"The run in {folder} (shard {config.shard}) has not finished.",
            hint=f"Continue it first: tts bench --resume {folder}",
        )
    check_complete(folder, config.problem_ids)
    return _Part(folder, Shard.parse(config.shard), config)


def _whole(parts: Sequence[_Part]) -> Sequence[_Part]:
    """The parts, if they are each shard of one run once; raises RunError."""
    first = parts[0]
    for part in parts[1:]:
        of_first, of_part = first.config.to_json(), part.config.to_json()
        for name in sorted((of_first.keys() | of_part.keys()) - _OF_A_SHARD):
            one, other = of_first.get(name), of_part.get(name)
            if one != other:
                raise RunError(
                    f"{first.folder} and {part.folder} are shards of different runs: their {name} "
                    f"is {one!r:.200} and {other!r:.200}.",
                    hint="Merge shards that were started with the same options.",
                )
        if part.shard.count != first.shard.count:
            raise RunError(
                f"{first.folder} is shard {first.shard} and {part.folder} is shard {part.shard}: "
                "they are parts of different splits.",
            )
    count = first.shard.count
    there = Counter(part.shard.number for part in parts)
    twice = [part for part in parts if there[part.shard.number] > 1]
    if twice:
        named = ", ".join(f"{part.folder} ({part.shard})" for part in twice)
        raise RunError(f"A shard is there more than once: {named}.", hint="Leave one of them out.")
    missing = [f"{number}/{count}" for number in range(1, count + 1) if number not in there]
    if missing:
        raise RunError(
            f"{'A shard is' if len(missing) == 1 else 'Shards are'} missing: {', '.join(missing)}.",
            hint="Run them with --shard, or name their folders, too.",
        )
    return parts
