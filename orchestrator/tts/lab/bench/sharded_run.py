"""A benchmark in shards: solved by processes on a Ray cluster, and made one run again.

Each shard is an ordinary run in a folder of its own; `tts runs merge` makes one run of them. With
`tts bench --ray` all machines see the folders, and there is a process and a shard for each server.
Ray only decides where a process runs; everything is kept as in any run.
"""

from __future__ import annotations

import importlib
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from tts.base.errors import ConfigError, RunError, TtsError
from tts.base.extras import how_to_install
from tts.datasets.options import Shard, interleaved
from tts.runs.checks import write_summary
from tts.runs.compare import differing_settings
from tts.runs.config import RunConfig, read_run_config
from tts.runs.folder import create_run, has_finished, locked, refuse_begun
from tts.runs.log import write_merged
from tts.runs.run import Run
from tts.runs.summary import summarise
from tts.runs.tables import write_answers
from tts.session.event_loop import interruptible
from tts.session.plan import Plan, load_checked

from ..campaign import Campaign
from ..observer import Observer
from .single_run import bench_in, fitted, folder_of, prepare

SHARDS = "shards"
"""The folder of a run's shards, in its own."""


def solve_shard(config: RunConfig, shard: Shard, endpoint: str, folder: Path) -> TtsError | None:
    """Begin or resume a shard of a run on a server; returns the error that ended it too early."""
    part = msgspec.structs.replace(config, shard=str(shard))
    try:
        bench_in(part, folder, Observer(), endpoints=(endpoint,))
    except TtsError as error:
        return error
    return None


def run_on_ray(
    config: RunConfig, out: Path | None, observer: Observer, *, endpoints: tuple[str, ...] = ()
) -> Path:
    """Run a benchmark by a process for each endpoint; the folder of the merged run.

    The same call with the folder of one that was cut short goes on with it. Raises a TtsError.
    """
    endpoints = endpoints or tuple(load_checked(config.deployment_source).endpoints)
    if not endpoints:
        raise ConfigError(
            "No server is named for Ray's processes.",
            hint="Give --endpoint HOST:PORT for each, or `endpoints` in the deployment.",
        )
    if config.shard or config.strategy == "all":
        raise ConfigError("--ray goes with a whole run of one strategy.")
    plan = prepare(config, observer, endpoints)
    folder = folder_of(plan, plan.strategy.name, out)
    campaign = Campaign(observer, endpoints, plan.verifier, cold=False)

    async def whole_plan() -> Plan:
        async with campaign:
            return await fitted(plan, campaign)

    whole = interruptible(whole_plan(), observer.say).request
    config = msgspec.structs.replace(
        config, parameters=whole.parameters, limits=whole.limits, fitted_to=whole.fitted_to
    )
    count = min(len(plan.problems), len(endpoints))
    shards = [Shard(number, count) for number in range(1, count + 1)]
    folders = [folder / SHARDS / f"{shard.number}-of-{count}" for shard in shards]
    with locked(folder / SHARDS):
        refuse_begun(folder)
        with _ray(count) as ray:
            # a process that is lost is started again, and goes on from the log
            options = {"num_cpus": 1, "max_retries": -1, "scheduling_strategy": "SPREAD"}
            remote = ray.remote(solve_shard).options(**options)
            running = [
                remote.remote(config, *each)
                for each in zip(shards, endpoints, folders, strict=False)
            ]
            if errors := [error for error in ray.get(running) if error]:
                raise errors[0]
    return merge_runs(folders, folder)


@contextmanager
def _ray(processes: int) -> Iterator[Any]:
    """Ray, connected to the cluster of RAY_ADDRESS, or to one of this machine's own."""
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")  # it reports to its makers otherwise
    try:
        ray = importlib.import_module("ray")
    except ImportError as error:
        raise ConfigError(
            f"Ray is not installed: {error}.", hint=f"Install it: {how_to_install('ray')}"
        ) from error
    own = {"address": "local", "num_cpus": processes, "include_dashboard": False}
    own["_node_ip_address"] = "127.0.0.1"
    cluster = {} if os.environ.get("RAY_ADDRESS") else own
    ray.init(log_to_driver=False, logging_level="error", **cluster)
    try:
        yield ray
    finally:
        ray.shutdown()


@dataclass(frozen=True)
class _ShardRun:
    folder: Path
    shard: Shard
    config: RunConfig


def merge_runs(folders: Sequence[Path], out: Path) -> Path:
    """Make one run folder of finished shards; its trees, answers and digest are the whole run's.

    Raises RunError for folders that are not finished shards of one configuration, and for shards
    that are missing or duplicated.
    """
    parts = _whole(sorted(map(_read, folders), key=lambda part: part.shard.number))
    problem_ids = interleaved([part.config.problem_ids for part in parts])
    if problem_ids is None or len(set(problem_ids)) < len(problem_ids):
        raise RunError(
            "The shards' problems do not fit together: they are not parts of one dataset.",
            hint="Run all of them with the same dataset, --limit and --dataset-seed.",
        )
    first = parts[0].config
    same_command = all(part.config.command == first.command for part in parts)
    whole = msgspec.structs.replace(
        first,
        shard=None,
        problem_ids=problem_ids,
        command=first.command if same_command else [],
    )
    out = out.resolve()
    with locked(out):
        create_run(out, whole.to_json())
        write_merged(out, {f"shard {part.shard}": part.folder for part in parts})
        merged = Run(out, whole, None)
        write_answers(merged)
        write_summary(out, summarise(whole, merged.totals).to_json())
    return out


def _read(folder: Path) -> _ShardRun:
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
    return _ShardRun(folder, Shard.parse(config.shard), config)


def _whole(parts: Sequence[_ShardRun]) -> Sequence[_ShardRun]:
    """The parts, if they are each shard of one run once; raises RunError."""
    first = parts[0]
    for part in parts[1:]:
        for setting in differing_settings([first.config, part.config]):
            if setting.name != "shard":
                one, other = setting.values
                raise RunError(
                    f"{first.folder} and {part.folder} are shards of different runs: their "
                    f"{setting.name} is {one!r:.200} and {other!r:.200}.",
                    hint="Merge shards that were started with the same options.",
                )
        if part.config.problems_digest != first.config.problems_digest:
            raise RunError(
                f"{first.folder} and {part.folder} were not asked the same: the questions or "
                f"answers of {first.config.dataset} were changed in between.",
                hint="Run the shards that have the wrong ones again, in a new folder.",
            )
    there = [str(part.shard) for part in parts]
    count = first.shard.count
    if there != (needed := [f"{number}/{count}" for number in range(1, count + 1)]):
        raise RunError(
            f"A run in {count} shards is {', '.join(needed)}; these are {', '.join(there)}.",
            hint="Name each folder once, and run what is missing with --shard.",
        )
    return parts
