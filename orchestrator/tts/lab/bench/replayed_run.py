"""What `--replay` makes of the other options."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path
from typing import Any

import msgspec

from tts.build.errors import ConfigError
from tts.build.spec import load_deployment
from tts.datasets.load import problems_of_run
from tts.prompting import Models
from tts.runs.config import Limits, RunConfig
from tts.runs.replay import open_source
from tts.session.plan import findable
from tts.strategies.catalog import find_strategy

from ..simulation.scenario import RecordedRun

_COMPARED = (
    "limit",
    "seed",
    "strategy",
    "dataset_seed",
    "columns",
    "answers",
    "per_level",
    "shard",
)
"""Options that decide what is solved, by their names in run.json."""


def as_recorded(config: RunConfig, path: Path, given: Collection[str]) -> RunConfig:
    """The configuration of a replay of `path`: that of the recorded run, scheduled as `config`
    says.

    Raises ConfigError naming an option that was given and is not as recorded.
    """
    source = open_source(path)
    replay = source.description
    if source.recorded is None:
        return msgspec.structs.replace(config, replay=replay)
    recorded = source.recorded
    if recorded.sources.keys() - config.sources.keys():
        named = ", ".join(each.file for each in recorded.sources.values())
        raise ConfigError(
            f"Python code takes part in the run in {source.path}, and is used only if you name it "
            f"again: {named}."
        )
    asked = {name: getattr(config, name) for name in _COMPARED if name in given}
    if config.limits != Limits():
        asked["limits"] = msgspec.to_builtins(config.limits)
    if "dataset" in given:
        asked["dataset"] = findable(config.dataset)
    _refuse_others(source.path, asked, config.parameters, recorded)
    return msgspec.structs.replace(
        recorded,
        deployment_source=config.deployment_source,
        schedule=config.schedule,
        speculation=config.speculation,
        in_flight=config.in_flight,
        replay=replay,
        sources=config.sources,
        command=config.command,
    )


def recorded_work(path: Path, asked: dict[str, Any], parameters: dict[str, Any]) -> RecordedRun:
    """A recorded run to be simulated; raises a TtsError naming what does not fit.

    `asked` and `parameters` are the options and the strategy's parameters that were given.
    """
    source = open_source(path)
    if source.recorded is None:
        raise ConfigError(
            f"{source.path} is not the folder of a recorded run.",
            hint="The statistics of a trace file: --traces.",
        )
    config = source.recorded
    _refuse_others(source.path, asked, parameters, config)
    if config.limits != Limits():
        raise ConfigError(
            f"The run recorded in {source.path} had limits of tokens or time, which are not "
            "simulated.",
            hint="Replay it on the engines (tts bench --replay), or record a run without limits.",
        )
    models = source.limited(Models.load(load_deployment(config.deployment_source)))
    problems = source.problems(problems_of_run(source.path, config))
    return RecordedRun(
        models,
        tuple(problems),
        config.strategy,
        find_strategy(config.strategy).configure(
            config.parameters, context=models.deployment.generator.max_seq_len
        ),
        config.seed,
        source.script(models, problems),
    )


def _refuse_others(
    folder: Path, asked: dict[str, Any], parameters: dict[str, Any], recorded: RunConfig
) -> None:
    """Raise ConfigError for the first of the options that is not as recorded."""
    seeds = {"dataset_seed": recorded.seed}  # runs of before there were two say one for both
    known = {**recorded.parameters, **seeds, **recorded.to_json()}
    for name, value in {**asked, **parameters}.items():
        if known.get(name) != value:
            raise ConfigError(
                f"{name} is {value!r}, but the run recorded in {folder} has "
                f"{known.get(name)!r}; a replay does what was recorded.",
                hint="Leave the option out.",
            )
