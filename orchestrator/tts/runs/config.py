"""`RunConfig`: what a run is asked to be. The same object is planned, kept as run.json, compared
when the run is continued, and read back.
"""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path
from typing import Annotated, Any, Literal, get_args

import msgspec

from tts.base.choices import ServerKind
from tts.base.errors import RunError
from tts.build.spec import Deployment, Role, VerifierCommand
from tts.scheduling import ScheduleName, SpeculationName
from tts.strategies.strategy import Vote

from .checks import check_run
from .events import LoggedCount
from .folder import CONFIG, PROBLEMS, Json, damaged, read_config

# what decides the engines' answers but is not served, and so is not in the deployment's digest
_PROMPTING: dict[str, set[str]] = {
    "generator": {"system_prompt", "step_delimiter"},
    "verifier": {"format", "step_tag", "template", "prompt", "system_prompt"},
}
_WHERE_GIVEN = {
    "chat_template",
    "chat_template_kwargs",
    "thinking",
    "reads_thinking",
    "criteria",
    "critique",
    "calibration",
}
"""Further ones, which are recorded where they are not the defaults."""
NOT_REPRODUCIBLE = (
    "the generator does not honour seeds, or not with several requests in flight: trees differ "
    "from run to run, and a run that is continued is not the one that it would have been"
)


class RemoteEngine(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Servers that had one of the engines, and were asked by HTTP."""

    url: list[str]
    model: str | None = None
    """The model's name at the server."""
    servers: list[str] = []
    """Each server's description of itself when the run was started; empty before that."""
    reproducible: bool | None = None
    """Whether the same seed gave the generator's same tokens twice; None: not known."""
    started: str = ""
    """The command line with which it was started; empty: it ran already."""
    deterministic: bool | None = None
    """Whether it was started in its batch-invariant mode; None: it ran already."""


class FunctionSource(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A function or a class in a Python file, which a command has loaded."""

    file: str
    name: str
    sha256: str = ""
    """The SHA-256 of the file; empty before it was read."""


class Limits(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """Limits of one problem; a search that reaches one ends with the best answer so far."""

    budget_tokens: Annotated[int, msgspec.Meta(ge=1)] | None = None
    """Generated tokens of both models that its tree may take. Exact: see `tts.search.budget`."""
    deadline_s: Annotated[float, msgspec.Meta(ge=0)] | None = None
    """Seconds from the start of its search. Its result therefore depends on timing."""

    def __bool__(self) -> bool:
        """Whether there is a limit."""
        return self != Limits()


class RunConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Everything that decides a run's outcome and its order, in the order of run.json.

    Whoever asks for a run fills in what differs from the defaults; `tts.session.plan.Plan.config`
    adds what is known once the deployment, the problems and the strategy are.
    """

    deployment: str = ""
    """The deployment's name. Resolved."""
    deployment_source: str = ""
    """What the user named: a bundled name or a file."""
    deployment_digest: str = ""
    """The digest of the models as they are served. Resolved."""
    prompting: dict[str, dict[str, Any]] = {}
    """Settings by model that determine the engines' answers but are not part of what is served.
    Resolved."""
    dataset: str = PROBLEMS
    """A name or a file; or PROBLEMS, where a program gave the problems."""
    limit: int | None = None
    """How many problems of the dataset are wanted; None: all."""
    seed: int = 0
    """The seed of the samples."""
    strategy: str = "beam-search"
    vote: str = ""
    """The rule that chooses the answer from the completions. Resolved."""
    parameters: dict[str, Any] = {}
    """The strategy's parameters: those that were given, and all of them once resolved."""
    context: int | None = None
    """Tokens of the generator's context. Resolved."""
    schedule: ScheduleName = "decoupled"
    speculation: SpeculationName = "auto"
    in_flight: int | None = None
    """Problems that run at a time at most; None: as many as the schedule wants."""
    problem_ids: list[str] = []
    """The problems, in order. Resolved."""
    dataset_seed: int | None = None
    """Seed of generated problems and of draws; None: that of the run."""
    columns: dict[str, str] = {}
    """The columns of a file that the user named, by their content."""
    answers: str | None = None
    """How a file's answers are written (`tts.datasets.answers`)."""
    per_level: int | None = None
    """Problems to draw of each level; None: all."""
    start: int | None = None
    """The first problem that is taken, counted from 0; None: the first one there is."""
    shard: str | None = None
    """The part of the problems that this run solves, as i/N; None: all of them."""
    limits: Limits = Limits()
    functions: dict[str, str] = {}
    """The program's own functions and endpoints that take part, by role. Resolved."""
    server: ServerKind | None = None
    """What runs the engines; None: what the deployment says. It decides nothing of the outcome."""
    remotes: dict[str, RemoteEngine] = {}
    """The engines that ran already, by role. Resolved."""
    sources: dict[str, FunctionSource] = {}
    """The files of a command's functions that take part, by role, as the run began with them."""
    command: list[str] = []
    """The command line that asked for the run, word by word and without secrets; none of a
    program's. It decides nothing of the outcome."""
    fitted_to: Limits = Limits()
    """The mean cost of a problem to which n was fitted; it ends no search."""
    problems_digest: str | None = None
    """The SHA-256 of ids, questions and references, of a shard those of the whole. Resolved."""
    model_parameters: dict[Role, LoggedCount] = {}
    """Parameters by role that a token is multiplied with, of the models whose shape is known. They
    decide nothing of the outcome. Resolved."""
    seeds: Literal["consecutive"] | None = None
    """The rule for the seeds of samples (`tts.search.node_seed`); None: hashes. Resolved."""

    @property
    def keeps_problems(self) -> bool:
        """Whether the run folder holds the problems, as no dataset does."""
        return self.dataset == PROBLEMS

    @property
    def critiques(self) -> int:
        """How many critiques a score takes; 0 of a verifier that writes none."""
        verifier = self.prompting.get("verifier", {})
        if verifier.get("format") != "critique":
            return 0
        samples: int = verifier.get("critique", {}).get("samples", 1)
        return samples

    def to_json(self) -> Json:
        """The content of run.json, in its order."""
        values = ((name, getattr(self, name)) for name in FIELDS)
        return {
            name: msgspec.to_builtins(value)
            for name, value in values
            if name not in LEFT_OUT or value not in (None, {}, [], Limits())
        }


FIELDS = RunConfig.__struct_fields__
"""The fields of run.json, in its order."""
LEFT_OUT = set(FIELDS[FIELDS.index("dataset_seed") :])
"""Fields that are not written where they are empty."""
CIRCUMSTANCES = ("server", "remotes", "command", "model_parameters")
"""Fields that decide nothing of the outcome: a run may go on elsewhere, by another command."""


def read_run_config(folder: Path, *, going_on: bool = False) -> RunConfig:
    """A run's configuration, with every field that continuing it needs; raises RunError.

    The folder's parts are checked against one another, unless the run is `going_on`: then its log
    is read as it grows, and its summary made anew.
    """
    data = read_config(folder)
    if not going_on:
        check_run(folder)
    return parse_config(data, folder / CONFIG)


def parse_config(data: Json, file: Path, *, lacks: Collection[str] = ()) -> RunConfig:
    """A configuration as `file` has it; raises RunError for fields that are wrong, missing, or
    none of a run. Fields in `lacks` need not be there.
    """
    try:
        config = msgspec.convert(data, RunConfig)
    except msgspec.ValidationError as error:
        raise damaged(file, error) from error
    for name in FIELDS:
        if name not in data and name not in LEFT_OUT and name not in lacks:
            raise damaged(file, f"Object missing required field `{name}`")
    if config.vote not in ("", *get_args(Vote)):
        raise damaged(file, f"{config.vote!r:.100} is no rule of voting")
    return config


def check_same(now: Json, before: Json, folder: Path) -> None:
    """Refuse to continue a run whose configuration has changed; raises RunError naming the change.

    The circumstances are not compared: of engines elsewhere only the model counts, where it is
    named on both sides. Nor is the content of functions' files: the log says when it changed.
    """
    current, earlier = (
        (each.get("problem_ids"), each.get("problems_digest")) for each in (now, before)
    )
    if current[0] == earlier[0] and current[1] != earlier[1]:
        raise RunError(
            f"The run in {folder} cannot be continued: the questions or answers of "
            f"{now['dataset']} are not those that it began with.",
            hint="Bring them back as they were, or start a new run.",
        )
    for name in (*before, "functions", "limits", "seeds"):
        if name not in (*CIRCUMSTANCES, "sources") and now.get(name) != before.get(name):
            name, was, is_now = _difference(name, before.get(name), now.get(name))
            raise RunError(
                f"The run in {folder} cannot be continued: its {name} was {was!r:.200} and is now "
                f"{is_now!r:.200}.",
                hint="Bring that back as it was, or start a new run.",
            )
    models = _models(now)
    for role, model in _models(before).items():
        if models.get(role, model) != model:
            raise RunError(
                f"The run in {folder} cannot be continued: its {role} was {model!r} and is now "
                f"{models[role]!r}.",
                hint="Serve that model again, or start a new run.",
            )


def _difference(name: str, before: Any, now: Any) -> tuple[str, Any, Any]:
    """The first field that differs, by its path, with both values."""
    if not (isinstance(before, dict) and isinstance(now, dict)):
        return name, before, now
    field = next(each for each in [*before, *now] if before.get(each, ...) != now.get(each, ...))
    return _difference(f"{name}.{field}", before.get(field), now.get(field))


def _models(config: Json) -> dict[str, str]:
    """The names of models elsewhere by role, as far as they are known."""
    remotes: dict[str, Json] = config.get("remotes", {})
    return {role: each["model"] for role, each in remotes.items() if each.get("model")}


def prompting_of(deployment: Deployment) -> dict[str, Any]:
    """The fields of a deployment that prompts depend on, by role."""
    fields = deployment.model_dump(mode="json", include=_PROMPTING)
    for role in fields:
        section = getattr(deployment, role)
        fields[role] |= section.model_dump(mode="json", include=_WHERE_GIVEN, exclude_defaults=True)
    if isinstance(deployment.verifier, VerifierCommand):
        fields["verifier"] |= deployment.verifier.record
    if limits := deployment.execution.model_dump(mode="json", exclude_defaults=True):
        fields["execution"] = limits
    return fields
