"""A run's plan: everything that decides its outcome and its order, as frozen data."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tts.build.errors import ConfigError, RunError
from tts.build.input_files import is_file
from tts.build.spec import Deployment, load_deployment
from tts.datasets.options import DatasetOptions
from tts.driver.policy import policy_of
from tts.problem import Problem
from tts.prompting import Context, Models
from tts.runs.folder import PROBLEMS
from tts.runs.replay import Replay
from tts.scheduling import Policy, ScheduleName, SpeculationName
from tts.serving.repository.digest import deployment_digest
from tts.strategies.parameters import check_blocks

from .functions import AnswerFunction, EqualFunction, name_of
from .limits import Limits
from .strategy import ChosenStrategy

FUNCTIONS = "functions"
LIMITS = "limits"
# what decides the engines' answers but is not served, and so is not in the deployment's digest
_PROMPTING: dict[str, set[str]] = {
    "generator": {"system_prompt", "step_delimiter"},
    "verifier": {"format", "step_tag", "template", "prompt", "system_prompt"},
}
_NEWER = ("prompt", "system_prompt")


@dataclass(frozen=True)
class Grading:
    """Functions of the program's own that say what an answer is, and when two are equal."""

    answer_of: AnswerFunction | None = None
    equal: EqualFunction | None = None


@dataclass(frozen=True)
class Plan:
    """What is solved, how, and on what."""

    deployment: Deployment
    problems: tuple[Problem, ...]
    strategy: ChosenStrategy
    seed: int = 0
    schedule: ScheduleName = "decoupled"
    speculation: SpeculationName = "auto"
    in_flight: int | None = None
    """Problems that run at a time at most; None: as many as the schedule wants."""
    source: str = ""
    """What the user named the deployment: a bundled name or a file."""
    dataset: str = PROBLEMS
    """The problems' dataset; or they are kept in the run folder, in this file."""
    limit: int | None = None
    """Of the dataset: how many problems the user wanted."""
    replay: Replay | None = None
    """What answers in the engines' place, if they only do the work."""
    context: int | None = None
    """The generator's context in tokens where it is that of a replayed run."""
    grading: Grading = field(default_factory=Grading)
    endpoints: Mapping[str, str] = field(default_factory=dict)
    """The program's own endpoints, by name: `generator`, `verifier`."""
    limits: Limits = field(default_factory=Limits)
    """Of each problem."""
    dataset_options: DatasetOptions = field(default_factory=DatasetOptions)
    """How the dataset was read, and what was taken of it."""

    @property
    def policy(self) -> Policy:
        """What may be in flight."""
        return policy_of(
            self.deployment, self.schedule, speculation=self.speculation, problems=self.in_flight
        )

    def limited(self, models: Models) -> Models:
        """The deployment's models, with the context that the plan says."""
        return models if self.context is None else models.with_context(self.context)

    @property
    def keeps_problems(self) -> bool:
        """Whether the run folder holds the problems, as no dataset does."""
        return self.dataset == PROBLEMS

    def to_config(self) -> dict[str, Any]:
        """What `run.json` keeps, enough to resume."""
        config = {
            "deployment": self.deployment.name,
            "deployment_source": self.source or self.deployment.name,
            "deployment_digest": deployment_digest(self.deployment),
            "prompting": _prompting(self.deployment),
            "dataset": self.dataset,
            "limit": self.limit,
            "seed": self.seed,
            "strategy": self.strategy.name,
            "vote": self.strategy.vote,
            "parameters": self.strategy.parameters,
            "context": self.context or self.deployment.generator.max_seq_len,
            "schedule": self.schedule,
            "speculation": self.speculation,
            "in_flight": self.in_flight,
            "problem_ids": [problem.id for problem in self.problems],
        }
        if not self.keeps_problems:
            config |= self.dataset_options.to_config(self.seed)
        if self.replay:
            config["replay"] = self.replay.description
        if limits := self.limits.to_config():
            config[LIMITS] = limits
        if functions := self._functions():
            config[FUNCTIONS] = functions
        return config

    def _functions(self) -> dict[str, str]:
        names = dict(self.endpoints)
        if self.strategy.function:
            names["strategy"] = self.strategy.function
        if self.grading.answer_of:
            names["answer_of"] = name_of(self.grading.answer_of)
        if self.grading.equal:
            names["equal"] = name_of(self.grading.equal)
        return names


def _prompting(deployment: Deployment) -> dict[str, Any]:
    """What is asked of the models; without the fields that runs from before they existed lack."""
    fields = deployment.model_dump(mode="json", include=_PROMPTING)
    verifier = fields["verifier"]
    fields["verifier"] = {k: v for k, v in verifier.items() if k not in _NEWER or v is not None}
    return fields


def load_checked(deployment: str | Path | Deployment) -> Deployment:
    """A deployment whose strategies' parameters are valid too; raises ConfigError."""
    if not isinstance(deployment, str | Path | Deployment):
        raise ConfigError(
            f"The deployment is {deployment!r:.200}.",
            hint="Give a bundled name such as 'demo', the path of a file, or a Deployment.",
        )
    loaded = deployment if isinstance(deployment, Deployment) else load_deployment(deployment)
    check_blocks(loaded)
    return loaded


def findable(name_or_file: str | Path) -> str:
    """A name as it is, a file by its absolute path: found again from any folder."""
    file = Path(name_or_file).expanduser()
    return str(file.resolve()) if is_file(file) else str(name_or_file)


def check_lengths(models: Models, problems: tuple[Problem, ...]) -> None:
    """Raise DatasetError for the first problem that does not fit the engines."""
    for problem in problems:
        Context.of(models, problem)


def check_same(now: Mapping[str, Any], before: Mapping[str, Any], folder: Path) -> None:
    """Refuse to continue what is no longer the same; raises RunError naming what has changed."""
    for name in (*before, FUNCTIONS, LIMITS):
        if now.get(name) != before.get(name):
            raise RunError(
                f"The run in {folder} cannot be continued: its {name} was "
                f"{before.get(name)!r:.200} and is now {now.get(name)!r:.200}.",
                hint="Bring that back as it was, or start a new run.",
            )


def refuse_functions(config: Mapping[str, Any], folder: Path) -> None:
    """Raise RunError for a run of which Python functions are a part: the command has none."""
    if functions := config.get(FUNCTIONS):
        named = ", ".join(f"{what} {name}" for what, name in functions.items())
        raise RunError(
            f"The run in {folder} was started by a Python program with functions of its own: "
            f"{named}.",
            hint=f"Continue it from that program: solve_many(..., out={str(folder)!r}, "
            "resume=True).",
        )
