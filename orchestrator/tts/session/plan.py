"""What is carried out: a run's configuration, resolved, and beside it what is no data."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec

from tts.build.errors import ConfigError, RunError
from tts.build.input_files import is_file
from tts.build.spec import Deployment, load_deployment
from tts.driver.policy import policy_of
from tts.problem import Problem
from tts.prompting import Context, Models
from tts.runs.config import ReplaySource, RunConfig
from tts.runs.replay import Replay
from tts.scheduling import Policy
from tts.serving.repository.digest import deployment_digest
from tts.strategies.parameters import check_blocks

from .functions import AnswerFunction, EqualFunction, name_of
from .strategy import ChosenStrategy

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
    """A run to be carried out. Made by `make_plan`."""

    config: RunConfig
    """Resolved: what run.json keeps."""
    deployment: Deployment
    problems: tuple[Problem, ...]
    strategy: ChosenStrategy
    grading: Grading = field(default_factory=Grading)
    replay: Replay | None = None
    """What answers in the engines' place, if they only do the work."""

    @property
    def policy(self) -> Policy:
        """What may be in flight."""
        config = self.config
        return policy_of(
            self.deployment,
            config.schedule,
            speculation=config.speculation,
            problems=config.in_flight,
        )

    def limited(self, models: Models) -> Models:
        """The deployment's models, with the context of the run."""
        context = self.config.context
        if context is None or context == models.deployment.generator.max_seq_len:
            return models
        return models.with_context(context)


def make_plan(
    config: RunConfig,
    deployment: Deployment,
    problems: tuple[Problem, ...],
    strategy: ChosenStrategy,
    *,
    grading: Grading | None = None,
    replay: Replay | None = None,
    context: int | None = None,
    endpoints: Mapping[str, str] | None = None,
) -> Plan:
    """The plan of a run that is asked to be `config`.

    `context` is the generator's context in tokens where it is that of a replayed run; `endpoints`
    are the names of the program's own, by what they do.
    """
    grading = grading or Grading()
    functions = {**(endpoints or {}), **_functions(strategy, grading)}
    source = msgspec.convert(replay.description, ReplaySource) if replay else None
    found = resolved(config, deployment, problems, strategy, context, source, functions)
    return Plan(found, deployment, problems, strategy, grading, replay)


def resolved(
    config: RunConfig,
    deployment: Deployment,
    problems: tuple[Problem, ...],
    strategy: ChosenStrategy,
    context: int | None = None,
    replay: ReplaySource | None = None,
    functions: Mapping[str, str] | None = None,
) -> RunConfig:
    """A configuration with every field that only planning knows, as run.json keeps it."""
    draw = config.dataset_seed
    config = msgspec.structs.replace(
        config,
        deployment=deployment.name,
        deployment_source=config.deployment_source or deployment.name,
        deployment_digest=deployment_digest(deployment),
        prompting=_prompting(deployment),
        strategy=strategy.name,
        vote=strategy.vote,
        parameters=strategy.parameters,
        context=context or deployment.generator.max_seq_len,
        problem_ids=[problem.id for problem in problems],
        dataset_seed=config.seed if draw is None else draw,
        replay=replay,
        functions=dict(functions or {}),
        others={},
        unsaid=frozenset(),
    )
    if config.keeps_problems:  # nothing was drawn or read from columns
        config = msgspec.structs.replace(
            config, dataset_seed=None, columns={}, answers=None, per_level=None, shard=None
        )
    return config


def _functions(strategy: ChosenStrategy, grading: Grading) -> dict[str, str]:
    """The program's own functions by what they do, as run.json names them."""
    names = {}
    if strategy.function:
        names["strategy"] = strategy.function
    if grading.answer_of:
        names["answer_of"] = name_of(grading.answer_of)
    if grading.equal:
        names["equal"] = name_of(grading.equal)
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


def refuse_functions(config: RunConfig, folder: Path) -> None:
    """Raise RunError for a run of which Python functions are a part: the command has none."""
    if config.functions:
        named = ", ".join(f"{what} {name}" for what, name in config.functions.items())
        raise RunError(
            f"The run in {folder} was started by a Python program with functions of its own: "
            f"{named}.",
            hint=f"Continue it from that program: solve_many(..., out={str(folder)!r}, "
            "resume=True).",
        )
