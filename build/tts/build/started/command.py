"""The command line of a started engine."""

from __future__ import annotations

import re
import shlex
import sys
from collections.abc import Mapping
from dataclasses import dataclass

from tts.base.errors import ConfigError

from ..spec import Deployment, Role, Scores
from .engines import ENGINES, Budget, Options, Start
from .memory import budgets, judge_of, own_head, sequences_of, tokens_of


@dataclass(frozen=True)
class Command:
    """A program and its arguments, without a shell, and what its environment has besides."""

    argv: tuple[str, ...]
    env: Mapping[str, str]

    def __str__(self) -> str:
        """The command as it is typed, with the key if it was made with one."""
        words = [f"{name}={shlex.quote(value)}" for name, value in self.env.items()]
        return " ".join([*words, shlex.join(self.argv)])


def command_of(
    deployment: Deployment,
    role: Role,
    port: int,
    *,
    host: str = "127.0.0.1",
    api_key: str | None = None,
    budget: Budget | None = None,
) -> Command:
    """What starts the engine of a role so that it listens on `host` and `port`.

    `argv[0]` is the engine's program, also within its image. `api_key` is in the environment, never
    among the arguments; engines that take none there are started without. Raises ConfigError for
    what does not fit or the engine cannot do, CheckpointError for a model that cannot be planned.
    """
    spec = deployment.started()[role]
    if spec.container:
        require_labels(deployment, role, spec.container.rpartition(":")[2].removeprefix("v"))
    engine = ENGINES[spec.target]
    start = Start(
        spec=spec,
        role=role,
        host=host,
        port=port,
        sequences=sequences_of(deployment, role),
        tokens=tokens_of(deployment, role),
        on_gpu=deployment.gpu is not None,
        hopper=deployment.gpu in ("h100", "h200"),
        deterministic=deployment.deterministic,
        judge=judge_of(deployment, role),
        head=require_head(deployment, role),
        budget=budget or budgets(deployment)[role],
    )
    name = engine.program_in_image if spec.container else spec.executable
    program = (str(name or engine.program[0]), *engine.program[1:])
    environment = dict(engine.environment(start))
    if deployment.gpu:
        environment["CUDA_VISIBLE_DEVICES"] = ",".join(map(str, spec.devices))
    if api_key and engine.key_variable:
        environment[engine.key_variable] = api_key
    words = (*program, *engine.positional(start), *_words(engine.options(start)))
    return Command((*words, *spec.extra_args), environment)


def _words(options: Options) -> list[str]:
    words = []
    for name, value in options.items():
        if value is True:
            words.append(name)
        elif value is not None and value is not False:
            words += [name, str(value)]
    return words


def require_labels(deployment: Deployment, role: Role, version: str) -> None:
    """Raise ConfigError where a verifier by labels is of a version that gives them inexactly."""
    spec, judge = deployment.started()[role], judge_of(deployment, role)
    engine = ENGINES[spec.target]
    by_labels = judge and (judge.labels or judge.critique.reads_labels) and not own_head(spec)
    parts, least = _parts(version), _parts(engine.labels_from or "")
    if by_labels and parts and least and parts < least:
        raise ConfigError(
            f"Deployment {deployment.name!r}: the verifier judges by labels, whose probabilities "
            f"{spec.target} {version} does not give exactly.",
            hint=f"Use {engine.labels_from} or later: {role}.container: {engine.image}",
        )


def _parts(version: str) -> tuple[int, ...] | None:
    """A version that compares, a release behind its candidates; None for other texts."""
    match = re.match(r"(\d+)\.(\d+)\.(\d+)(?:rc(\d+))?", version)
    return match and (*map(int, match.groups()[:3]), int(match[4] or sys.maxsize))


def require_head(deployment: Deployment, role: Role) -> Scores | None:
    """What the model's own head scores; None: it has a language head.

    Raises ConfigError for a head that the engine does not have, or that cannot write.
    """
    spec = deployment.started()[role]
    engine, headed = ENGINES[spec.target], own_head(spec)
    if headed is None:
        return None
    architecture, head = headed
    if role == "generator":
        raise ConfigError(
            f"Deployment {deployment.name!r}: generator.checkpoint is a verifier with {head.text}, "
            "which cannot generate.",
            hint="Set generator.checkpoint to a causal language model.",
        )
    if not architecture.endswith(engine.heads):
        able = [name for name, each in ENGINES.items() if architecture.endswith(each.heads)]
        raise ConfigError(
            f"Deployment {deployment.name!r}: {role}.checkpoint judges with {head.text} "
            f"({architecture}), whose scores {spec.target} {engine.version} does not give.",
            hint=f"Set {role}.target to {' or '.join([*able, 'openvino'])}.",
        )
    return head.scores
