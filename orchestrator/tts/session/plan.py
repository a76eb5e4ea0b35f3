"""The plan of a run: the requested configuration, with functions and other objects."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import msgspec

from tts.base.errors import CheckpointError, ConfigError, DatasetError, RunError
from tts.base.input_files import is_file
from tts.build.inputs import EngineInputs
from tts.build.resolve import resolve_models
from tts.build.spec import (
    Deployment,
    ExecutionSpec,
    Role,
    VerifierCommand,
    VerifierFunction,
    load_deployment,
)
from tts.build.tensorrt.engine_memory import parameters_per_token
from tts.build.thinking import require_budget
from tts.driver.policy import policy_of
from tts.endpoints.functions import name_of
from tts.problem import Problem, digest_of
from tts.prompting import Context, Models
from tts.runs.config import RemoteEngine, RunConfig, prompting_of
from tts.scheduling import Policy
from tts.search import Calibration, SearchConfig
from tts.serving.repository.digest import deployment_digest
from tts.strategies.parameters import check_blocks, require_scores

from .functions import AnswerFunction, EqualFunction, Loaded
from .result import Step, Usage
from .strategy import ChosenStrategy

_SHOWN = 20
"""Most problems that a message names."""
_HERE = ("localhost", "127.0.0.1", "::1", "[::1]")


@dataclass(frozen=True)
class Plan:
    """A run to be carried out: the requested configuration, with functions and other objects."""

    request: RunConfig
    deployment: Deployment
    problems: tuple[Problem, ...]
    strategy: ChosenStrategy
    answer_of: AnswerFunction | None = None
    """The program's function that extracts an answer."""
    equal: EqualFunction | None = None
    """The program's function that compares two answers."""
    endpoints: Mapping[str, str] = field(default_factory=dict)
    """The names of the program's own endpoints by role: `generator`, `verifier`."""
    loaded: Mapping[str, Loaded] = field(default_factory=dict)
    """Objects that a command has loaded from Python files, by role."""
    remotes: Mapping[str, RemoteEngine] | None = None
    """The facts about engines that run already; None: those of the deployment."""
    on_step: Callable[[Step], None] | None = None
    """Called with each step that is written or scored."""
    on_server: Callable[[str], None] = lambda name: None
    """Called with the server that a problem goes to; again when it moves to another."""
    on_usage: Callable[[Usage], None] | None = None
    """Called with the engines' work for a problem when its search has ended, in whatever way; one
    that is cut off ends when the engines have said what they have written by then."""

    def __post_init__(self) -> None:
        """Raises ConfigError for a search over steps whose verifier scores whole answers alone."""
        if self.strategy.config and "verifier" not in {*self.endpoints, *self.loaded}:
            require_scores(self.strategy.name, self.strategy.config, self.deployment)

    @property
    def calibration(self) -> Calibration | None:
        """The calibration of the deployment's own verifier, for searches that weigh scores."""
        own = "verifier" in {*self.endpoints, *self.loaded}
        replaced = own and not isinstance(self.deployment.verifier, VerifierFunction)
        if replaced or not self.strategy.weighs_scores:
            return None
        return calibration_of(self.deployment)

    @property
    def verifier(self) -> Any | None:
        """The function in a file that scores, if one does."""
        return self.loaded["verifier"].value if "verifier" in self.loaded else None

    @cached_property
    def config(self) -> RunConfig:
        """The resolved configuration, which run.json keeps; it takes a look at files."""
        request, deployment, strategy = self.request, self.deployment, self.strategy
        config = msgspec.structs.replace(
            request,
            deployment=deployment.name,
            deployment_source=request.deployment_source or deployment.name,
            deployment_digest=deployment_digest(deployment),
            prompting=prompting_of(deployment),
            strategy=strategy.name,
            vote=strategy.vote,
            parameters=strategy.parameters,
            context=deployment.generator.max_seq_len,
            problem_ids=[problem.id for problem in self.problems],
            problems_digest=request.problems_digest or digest_of(self.problems),
            dataset_seed=request.seed if request.dataset_seed is None else request.dataset_seed,
            functions=_functions(self),
            server=None if deployment.server.kind == "triton" else deployment.server.kind,
            remotes=dict(_remotes(deployment) if self.remotes is None else self.remotes),
            sources={role: each.source for role, each in self.loaded.items()},
            model_parameters=dict(_model_parameters(self)),
            seeds="consecutive" if deployment.consecutive_seeds else None,
        )
        if not config.keeps_problems:
            return config
        # nothing was drawn or read from columns
        unset = dict.fromkeys(("dataset_seed", "answers", "per_level", "start", "shard"))
        return msgspec.structs.replace(config, columns={}, **unset)

    @property
    def policy(self) -> Policy:
        """The limits in flight."""
        request = self.request
        return policy_of(
            self.deployment,
            request.schedule,
            speculation=request.speculation,
            problems=request.in_flight,
        )


def calibration_of(deployment: Deployment) -> Calibration | None:
    """The probabilities that scores of a deployment's verifier stand for, if it was measured."""
    points = deployment.verifier.calibration
    if points is None:
        return None
    return Calibration.of(points.final, points.inner, points.final_auroc, points.inner_auroc)


def _remotes(deployment: Deployment) -> dict[str, RemoteEngine]:
    """The deployment's facts about engines that run already, before they were asked."""
    return {
        role: RemoteEngine(url=list(spec.url), model=spec.model)
        for role, spec in deployment.remotes().items()
    }


def _model_parameters(plan: Plan) -> Iterator[tuple[Role, int]]:
    """The parameters that a token is multiplied with, of the models whose config.json is here."""
    for role in plan.deployment.roles():
        if role not in plan.endpoints and role not in plan.loaded:
            with suppress(CheckpointError):
                yield role, parameters_per_token(EngineInputs(plan.deployment, role).shape)


def _functions(plan: Plan) -> dict[str, str]:
    """The program's own functions by role, as run.json names them."""
    names = dict(plan.endpoints)
    if plan.verifier is not None:
        names["verifier"] = name_of(plan.verifier)
    if plan.strategy.function:
        names["strategy"] = plan.strategy.function
    if plan.answer_of:
        names["answer_of"] = name_of(plan.answer_of)
    if plan.equal:
        names["equal"] = name_of(plan.equal)
    return names


def load_checked(deployment: str | Path | Deployment) -> Deployment:
    """A deployment with its models and parameters checked; raises ConfigError, CheckpointError."""
    if not isinstance(deployment, str | Path | Deployment):
        raise ConfigError(
            f"The deployment is {deployment!r:.200}.",
            hint="Give a bundled name such as 'demo', the path of a file, or a Deployment.",
        )
    loaded = deployment if isinstance(deployment, Deployment) else load_deployment(deployment)
    loaded = resolve_models(loaded)
    check_blocks(loaded)
    return loaded


def deployment_of(config: RunConfig) -> Deployment:
    """The requested deployment of a run, on the requested kind of server."""
    return load_checked(config.deployment_source).served_by(config.server)


def reaches_for(deployment: str) -> list[str]:
    """What a deployment that the user did not name reaches for: other machines, programs."""
    try:
        spec = load_deployment(deployment)
    except ConfigError:
        return []
    runs = isinstance(spec.verifier, VerifierCommand) or spec.execution != ExecutionSpec()
    urls = [urlsplit(url).hostname for each in spec.remotes().values() for url in each.url]
    hosts = [*urls, *(address.rpartition(":")[0] for address in spec.endpoints)]
    elsewhere = not all(host in _HERE for host in hosts)
    return ["other machines"] * elsewhere + ["programs to run"] * runs


def findable(name_or_file: str | Path) -> str:
    """A bundled name unchanged, or a file's absolute path, which is valid from any folder."""
    file = Path(name_or_file).expanduser()
    return str(file.resolve()) if is_file(file) else str(name_or_file)


def check_lengths(
    models: Models, problems: tuple[Problem, ...], search: SearchConfig | None = None
) -> None:
    """Raise DatasetError naming all that do not fit, CheckpointError for too short a budget."""
    if search and search.thinking_budget is not None and models.thinking:
        closing = len(models.thinking.closing_ids)
        require_budget("thinking_budget", search.thinking_budget, closing)
    overlong: dict[str, DatasetError] = {}
    for problem in problems:
        try:
            Context.of(models, problem)
        except DatasetError as error:
            overlong[problem.id] = error
    if not overlong:
        return
    first = next(iter(overlong.values()))
    if len(problems) > 1:
        names = ", ".join(list(overlong)[:_SHOWN]) + ", ..." * (len(overlong) > _SHOWN)
        first.message = (
            f"{len(overlong):,} of {len(problems):,} problems are too long: {names}. The first: "
            f"{first.message}"
        )
        first.hint = f"{first.hint} docs/reference/datasets.md says how."
    raise first


def refuse_functions(config: RunConfig, folder: Path) -> None:
    """Raise RunError for a run of which functions of a program are a part: the command has none."""
    own = {what: name for what, name in config.functions.items() if what not in config.sources}
    if own:
        names = ", ".join(f"{what} {name}" for what, name in own.items())
        raise RunError(
            f"The run in {folder} was started by a Python program with functions of its own: "
            f"{names}.",
            hint=f"Continue it from that program: solve_many(..., out={str(folder)!r}, "
            "resume=True).",
        )
