"""What `--replay` makes of the other options."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from pathlib import Path
from typing import Any

from tts.build.errors import ConfigError
from tts.build.spec import load_deployment
from tts.datasets.load import problems_of_run
from tts.datasets.options import DatasetOptions
from tts.prompting import Models
from tts.runs.replay import Source, open_source
from tts.session.limits import Limits
from tts.session.plan import findable
from tts.strategies.catalog import find_strategy

from ..simulation.scenario import RecordedRun
from .request import Wanted, as_wanted


def as_recorded(wanted: Wanted, path: Path, given: Collection[str]) -> Wanted:
    """What a replay of `path` is: what a recorded run was, scheduled as `wanted` says.

    Raises ConfigError naming an option that was given and is not as recorded.
    """
    source = open_source(path)
    recorded = source.recorded
    if recorded is None:
        return replace(wanted, replay=source.path)
    asked: dict[str, Any] = {
        name: getattr(wanted, name) for name in ("limit", "seed", "strategy") if name in given
    }
    if wanted.limits != Limits():
        asked["limits"] = wanted.limits.to_config()
    if "dataset" in given:
        asked["dataset"] = findable(wanted.dataset)
    options = wanted.dataset_options.to_config(wanted.seed)
    asked |= {name: value for name, value in options.items() if name in given}
    options = DatasetOptions.of_config(recorded).to_config(recorded["seed"])
    _refuse_others(source, asked, wanted.parameters, options | recorded)
    replayed = as_wanted(recorded, wanted.deployment, recorded["strategy"], recorded["parameters"])
    return replace(
        replayed,
        schedule=wanted.schedule,
        speculation=wanted.speculation,
        in_flight=wanted.in_flight,
        replay=source.path,
    )


def recorded_work(path: Path, asked: dict[str, Any], parameters: dict[str, Any]) -> RecordedRun:
    """A recorded run to be simulated; raises a TtsError naming what does not fit.

    `asked` and `parameters` are the options and the strategy's parameters that were given.
    """
    source = open_source(path)
    config = source.recorded
    if config is None:
        raise ConfigError(
            f"{source.path} is not the folder of a recorded run.",
            hint="The statistics of a trace file: --traces.",
        )
    _refuse_others(source, asked, parameters, config)
    if Limits.of_config(config) != Limits():
        raise ConfigError(
            f"The run recorded in {source.path} had limits of tokens or time, which are not "
            "simulated.",
            hint="Replay it on the engines (tts bench --replay), or record a run without limits.",
        )
    models = source.limited(Models.load(load_deployment(config["deployment_source"])))
    problems = source.problems(problems_of_run(source.path, config))
    return RecordedRun(
        models,
        tuple(problems),
        config["strategy"],
        find_strategy(config["strategy"]).configure(
            config["parameters"], context=models.deployment.generator.max_seq_len
        ),
        config["seed"],
        source.script(models, problems),
    )


def _refuse_others(
    source: Source, asked: dict[str, Any], parameters: dict[str, Any], recorded: dict[str, Any]
) -> None:
    """Raise ConfigError for the first of the options that is not as recorded."""
    known = {**recorded["parameters"], **recorded}
    for name, value in {**asked, **parameters}.items():
        if known.get(name) != value:
            raise ConfigError(
                f"{name} is {value!r}, but the run recorded in {source.path} has "
                f"{known.get(name)!r}; a replay does what was recorded.",
                hint="Leave the option out.",
            )
