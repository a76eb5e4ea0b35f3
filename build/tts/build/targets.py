"""What a target must be able to do, and which module does it. To add one is to write a module."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Protocol

from .build_plan import BuildPlan, VerificationOutcome
from .checkpoint import FileStamp
from .manifest import EngineConfig, Settings
from .spec import Deployment, Role, Target


class TargetModule(Protocol):
    """The functions of a target's module."""

    def settings_for(self, deployment: Deployment, role: Role) -> Settings:
        """What the engine of a role would be made with now."""

    def plan_engine(self, deployment: Deployment, role: Role) -> BuildPlan:
        """Check everything that can be known without building."""

    def engine_config(self, deployment: Deployment, role: Role, folder: Path) -> EngineConfig:
        """What is served by the engine in `folder`, which is current."""

    def prepare(self, plans: Sequence[BuildPlan], verify: bool | None) -> None:
        """Refuse, before the first of these engines is made, what would stop any of them."""

    def make_engine(
        self,
        plan: BuildPlan,
        stamps: Sequence[FileStamp],
        folder: Path,
        verify: bool | None,
        say: Callable[[str], None],
    ) -> VerificationOutcome:
        """Make the engine in `folder`, which is empty and becomes its place afterwards."""

    def preview(self, deployment: Deployment, role: Role) -> list[str]:
        """What making the engine would do, as lines to print."""


def target_module(target: Target) -> TargetModule:
    """The module of a target; only that one is imported."""
    match target:
        case "openvino":
            from .openvino import target as openvino_target

            return openvino_target
        case "tensorrt":
            from .tensorrt import target as tensorrt_target

            return tensorrt_target
