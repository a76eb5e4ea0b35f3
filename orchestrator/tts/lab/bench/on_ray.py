"""`tts bench --ray`: shards of a run handed out to actors on a Ray cluster, one per server.

Each shard is an ordinary run in a folder that all machines see. A free actor gets the next one; an
actor that is lost is started again by Ray, and goes on with its shard from the log. So Ray decides
where a process runs, and nothing else: what is kept is what a run keeps.
"""

from __future__ import annotations

import importlib
import os
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec

from tts.build.errors import ConfigError, TtsError
from tts.datasets.options import Shard
from tts.runs.config import RunConfig
from tts.runs.folder import refuse_begun
from tts.runs.lock import locked
from tts.session.plan import load_checked
from tts.session.replicas import FAILURES

from ..observer import Observer
from .merging import merge_runs
from .single_run import bench_in, new_folder, plan_of, problems_of

SHARDS = "shards"
"""The folder of a run's shards, in its own."""
SHARDS_EACH = 4
"""Shards per server: more even out what differs in speed, fewer keep the engines fuller."""


class Actor:
    """Solves one shard after the other on one server, in a process of its own."""

    def __init__(self, config: RunConfig, endpoint: str) -> None:
        """`config` is the whole run."""
        self._config = config
        self._endpoints = (endpoint,)

    def solve(self, shard: Shard, folder: Path) -> TtsError | None:
        """Begin a shard, or go on with what its folder holds of it; what has ended it too early."""
        part = msgspec.structs.replace(self._config, shard=str(shard))
        try:
            bench_in(part, folder, Observer(), endpoints=self._endpoints)
        except TtsError as error:
            return error
        return None


def run_on_ray(
    config: RunConfig, out: Path | None, observer: Observer, *, endpoints: tuple[str, ...] = ()
) -> Path:
    """Run a benchmark by an actor for each endpoint; the folder of the merged run.

    The same call with the folder of one that was cut short goes on with it. Raises a TtsError.
    """
    endpoints = endpoints or tuple(load_checked(config.deployment_source).endpoints)
    if not endpoints:
        raise ConfigError(
            "No server is named for Ray's actors.",
            hint="Give --endpoint HOST:PORT for each, or `endpoints` in the deployment.",
        )
    if config.shard or config.strategy == "all" or config.replay:
        raise ConfigError("--ray goes with a whole run of one strategy, not with a replay.")
    problems = problems_of(config, observer.say)
    plan = plan_of(config, problems, endpoints)
    folder = (out or new_folder(plan, plan.strategy.name)).resolve()
    count = min(len(problems), SHARDS_EACH * len(endpoints))
    shards = [Shard(number, count) for number in range(1, count + 1)]
    folders = {shard: folder / SHARDS / f"{shard.number}-of-{count}" for shard in shards}
    with locked(folder / SHARDS):
        refuse_begun(folder)
        with _ray(len(endpoints)) as ray:
            _hand_out(ray, config, endpoints, folders, observer)
    return merge_runs(list(folders.values()), folder)


def _hand_out(
    ray: Any,
    config: RunConfig,
    endpoints: Sequence[str],
    folders: dict[Shard, Path],
    observer: Observer,
) -> None:
    """Give each actor a shard, and the next one whenever it has solved one."""
    # lost actors are started again, and what they did is called again: it goes on from the log
    remote = ray.remote(Actor).options(
        num_cpus=1, max_restarts=-1, max_task_retries=-1, scheduling_strategy="SPREAD"
    )
    actors = {endpoint: remote.remote(config, endpoint) for endpoint in endpoints}
    left = deque(folders.items())
    running: dict[Any, tuple[str, Shard]] = {}
    while left or running:
        busy = {endpoint for endpoint, _ in running.values()}
        for endpoint in actors:
            if left and endpoint not in busy:
                shard, folder = left.popleft()
                running[actors[endpoint].solve.remote(shard, folder)] = endpoint, shard
        (done,), _ = ray.wait(list(running), num_returns=1)
        endpoint, shard = running.pop(done)
        error: TtsError | None = ray.get(done)
        if error is None:
            observer.say(f"shard {shard} is solved, by {endpoint}")
        elif isinstance(error, FAILURES) and len(actors) > 1:
            observer.say(f"{endpoint} gets no more shards: {error.message}")
            del actors[endpoint]
            left.appendleft((shard, folders[shard]))
        else:
            raise error


@contextmanager
def _ray(actors: int) -> Iterator[Any]:
    """Ray, connected to the cluster of RAY_ADDRESS, or to one of this machine's own."""
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")  # it reports to its makers otherwise
    try:
        ray = importlib.import_module("ray")
    except ImportError as error:
        raise ConfigError(
            f"Ray is not installed: {error}.", hint="Install it: pip install 'tts-toolkit[ray]'"
        ) from error
    if os.environ.get("RAY_ADDRESS"):
        ray.init(log_to_driver=False, logging_level="error")
    else:
        ray.init(
            address="local",
            num_cpus=actors,
            include_dashboard=False,
            log_to_driver=False,
            logging_level="error",
            _node_ip_address="127.0.0.1",
        )
    try:
        yield ray
    finally:
        ray.shutdown()
