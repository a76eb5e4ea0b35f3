"""The interface of a target, and the module of each. To add a target is to write its module."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Protocol

from tts.base.errors import ConfigError

from .build_plan import BuildPlan, VerificationOutcome
from .checkpoint import FileStamp
from .inputs import EngineInputs
from .manifest import BuildSettings, EngineConfig
from .spec import Target


class TargetModule(Protocol):
    """The functions of a target's module."""

    def settings_for(self, inputs: EngineInputs) -> BuildSettings:
        """What an engine would be built with now."""

    def plan_engine(self, inputs: EngineInputs) -> BuildPlan:
        """Check everything that can be known without building."""

    def engine_config(self, inputs: EngineInputs, folder: Path) -> EngineConfig:
        """The configuration of the engine in `folder`, which is up to date."""

    def prepare(self, plans: Sequence[BuildPlan], verify: bool | None) -> None:
        """Before the first engine is built, refuse whatever would stop any of them."""

    def make_engine(
        self,
        plan: BuildPlan,
        stamps: Sequence[FileStamp],
        folder: Path,
        verify: bool | None,
        say: Callable[[str], None],
    ) -> VerificationOutcome:
        """Build the engine in `folder`, which is empty and moved into place afterwards."""

    def preview(self, inputs: EngineInputs) -> list[str]:
        """What building the engine would do, as lines to print."""


def target_module(target: Target) -> TargetModule:
    """The module of a target; only that one is imported.

    Raises ConfigError for the one that builds nothing.
    """
    match target:
        case "openvino":
            from .openvino import target as openvino_target

            return openvino_target
        case "tensorrt":
            from .tensorrt import target as tensorrt_target

            return tensorrt_target
        case _:
            raise ConfigError(f"Target {target} builds nothing.")
