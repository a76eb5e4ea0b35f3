"""The progress of a server that starts."""

from __future__ import annotations

import re
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path

from tts.build.spec import Role
from tts.engines import wire
from tts.engines.loading import OPEN, Stage

from .triton_log import tail

LOADING, WAITING, WARMING_UP = "loading", "waiting", "warming up"
_ENGINES: dict[str, Role] = {
    wire.GENERATOR: "generator",
    wire.PRM: "verifier",
    wire.PRM_ENGINE: "verifier",  # where `prm` is an ensemble, which loads after it
}
_BEGUN = re.compile(r'\] "?loading: (?P<model>\w+):\d')
_LOADED = re.compile(r"\] \"?successfully loaded '(?P<model>\w+)'")


@dataclass(frozen=True)
class Loading:
    """The progress of a server that starts."""

    seconds: float
    """Since it was launched."""
    engines: dict[Role, Stage]

    def __str__(self) -> str:
        stages = (
            f"{role}: {stage.doing}" + ("" if stage.fraction is None else f" {stage.fraction:.0%}")
            for role, stage in self.engines.items()
        )
        return ", ".join(stages)

    @property
    def is_open(self) -> bool:
        """Whether every engine is open."""
        return all(stage.doing in (OPEN, WARMING_UP) for stage in self.engines.values())


def read_loading(log: Path, seconds: float, roles: Collection[Role]) -> Loading:
    """How far the engines are by Triton's own lines and those of the engine host.

    `roles` are those that are served.
    """
    models = {model: role for model, role in _ENGINES.items() if role in roles}
    stages = {model: Stage(model, WAITING) for model in models}
    for line in tail(log):
        if (stage := Stage.parse(line)) and stage.model in stages:
            stages[stage.model] = stage
        elif (start := _BEGUN.search(line)) and start["model"] in stages:
            stages[start["model"]] = Stage(start["model"], LOADING)
        elif (end := _LOADED.search(line)) and end["model"] in stages:
            stages[end["model"]] = Stage(end["model"], WARMING_UP)
    engines: dict[Role, Stage] = {}
    for model, role in models.items():
        if role not in engines or stages[model].doing != WAITING:
            engines[role] = stages[model]
    return Loading(seconds, engines)
