"""A strategy's parameters: values from the caller, else from the deployment, else defaults."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from tts.base.errors import ConfigError, did_you_mean
from tts.base.input_files import Unreadable, read_text, require_path
from tts.build.spec import Deployment, VerifierCommand, VerifierFunction, explain
from tts.build.verifiers.dialogue import what_is_scored
from tts.constraints import answer_constraint
from tts.search import SearchConfig

from .catalog import STRATEGIES, all_strategies, find_strategy, strategy_names
from .names import TEXT_PARAMETERS
from .strategy import Strategy


def configure(strategy: Strategy, deployment: Deployment, values: dict[str, Any]) -> SearchConfig:
    """A strategy's parameters on a deployment; raises ConfigError.

    `values` win over the deployment's block for that strategy, which wins over the defaults.
    """
    block = with_schema_text(deployment.strategies.get(strategy.name, {}), deployment.folder)
    values = with_schema_text(values)
    for one, other in (TEXT_PARAMETERS, TEXT_PARAMETERS[::-1]):  # one form replaces the other
        if one in values and other not in values:
            block.pop(other, None)
    config = strategy.configure({**block, **values}, context=deployment.generator.max_seq_len)
    require_answer_form(config, deployment)
    return config


def configure_all(
    deployment: Deployment,
    values: dict[str, Any],
    compared: Mapping[str, Strategy] | None = None,
) -> dict[str, SearchConfig]:
    """The parameters of these strategies by name, or of every one; raises ConfigError.

    Each of `values` goes to every strategy that has it to set; one that none has is refused, and
    so is a value that one of them refuses.
    """
    strategies = compared or all_strategies()
    settable = list(dict.fromkeys(name for each in strategies.values() for name in _settable(each)))
    for parameter in values:
        if parameter not in settable:
            raise ConfigError(
                f"No strategy {'that is compared ' if compared else ''}has a parameter "
                f"{parameter!r}; there are {', '.join(settable)}.",
                hint=did_you_mean(parameter, settable).strip() or None,
            )
    return {
        name: configure(strategy, deployment, settable_of(strategy, values))
        for name, strategy in strategies.items()
    }


def settable_of(strategy: Strategy, values: Mapping[str, Any]) -> dict[str, Any]:
    """The values of those parameters that a strategy has to set."""
    allowed = _settable(strategy)
    return {name: value for name, value in values.items() if name in allowed}


def check_blocks(deployment: Deployment) -> None:
    """Refuse a deployment whose `strategies` are wrong in any place; raises ConfigError.

    Every block must be valid by itself, whichever strategy is about to run.
    """
    if wrong := [f"  {where}: {what}" for where, what in block_problems(deployment)]:
        raise ConfigError(f"Deployment {deployment.name} is not valid:\n" + "\n".join(wrong))


def block_problems(deployment: Deployment) -> Iterator[tuple[str, str]]:
    """Every mistake in a deployment's `strategies`: where it is, with its value, and what it is."""
    for name, block in deployment.strategies.items():
        path = f"strategies.{name}"
        if name not in (names := strategy_names()):
            yield path, f"unknown strategy; allowed here: {', '.join(names)}"
            continue
        try:
            strategy = find_strategy(name)
        except ConfigError as error:  # of a plug-in
            yield path, error.message
            continue
        allowed = _settable(strategy)
        unknown = [parameter for parameter in block if parameter not in allowed]
        for parameter in unknown:
            yield (
                f"{path}.{parameter} = {block[parameter]!r}",
                f"not a parameter that can be set; allowed here: {', '.join(allowed)}",
            )
        if not unknown:
            yield from _refusals(strategy, deployment, path)


def default_parameters(strategy: Strategy, context: int, n: int | None = None) -> dict[str, Any]:
    """The default of each parameter; `context` as in `Strategy.configure`.

    Some may depend on n: those are by default as for this `n`, if it goes with the other defaults.
    """
    values = {} if n is None else {"n": n}
    try:
        config = strategy.configure(values, context=context)
    except ConfigError:
        config = strategy.configure({}, context=context)
    return config.model_dump(mode="json")


def _settable(strategy: Strategy) -> list[str]:
    return [name for name in strategy.config.model_fields if name not in strategy.fixed]


def _refusals(strategy: Strategy, deployment: Deployment, path: str) -> Iterator[tuple[str, str]]:
    try:
        configure(strategy, deployment, {})
    except ConfigError as error:
        if not isinstance(error.__cause__, ValidationError):
            yield path, error.message
            return
        for line in explain(error.__cause__, strategy.config, path).splitlines():
            where, _, what = line.strip().partition(": ")
            yield where, what


MAX_SCHEMA_BYTES = 1_000_000


def with_schema_text(values: Mapping[str, Any], folder: Path | None = None) -> dict[str, Any]:
    """Parameters whose `answer_schema`, given as a file, an object or JSON text, is JSON text.

    A relative path starts in `folder`, or where the program runs. Raises ConfigError.
    """
    schema = values.get("answer_schema")
    if isinstance(schema, Mapping):
        schema = json.dumps(schema)
    elif isinstance(schema, str | Path) and not str(schema).lstrip().startswith("{"):
        schema = _read((folder or Path()) / Path(schema).expanduser())
    return {**values, "answer_schema": schema} if "answer_schema" in values else {**values}


def require_answer_form(config: SearchConfig, deployment: Deployment) -> None:
    """Raise ConfigError for a form of answers that is wrong, or that the generator cannot keep."""
    delimiter = deployment.generator.step_delimiter
    constraint = answer_constraint(config.answer_regex, config.answer_schema, delimiter)
    if constraint and not deployment.generator.guided_decoding:
        raise ConfigError(
            "The answer is given a form (answer_regex or answer_schema), but the generator of "
            f"deployment {deployment.name} is served without guided decoding.",
            hint="Set generator.guided_decoding: true in the deployment.",
        )


def scores_answers(deployment: Deployment) -> bool:
    """Whether the deployment's verifier scores whole answers alone."""
    verifier = deployment.verifier
    if isinstance(verifier, VerifierFunction):
        return False
    if isinstance(verifier, VerifierCommand):
        return verifier.scores == "answers"
    return what_is_scored(verifier.tokenizer_folder, verifier) == "answers"


def require_scores(strategy: str, config: SearchConfig, deployment: Deployment) -> None:
    """Raise ConfigError for scores of steps where the verifier scores whole answers alone."""
    if config.scores_steps and scores_answers(deployment):
        context = deployment.generator.max_seq_len
        defaults = {name: each.configure({}, context=context) for name, each in STRATEGIES.items()}
        fitting = [name for name, each in defaults.items() if not each.scores_steps]
        form = f" with agg_strategy {config.agg_strategy}" if strategy in fitting else ""
        raise ConfigError(
            f"Strategy {strategy}{form} asks for scores of steps, but the verifier of deployment "
            f"{deployment.name} scores whole answers.",
            hint=f"By agg_strategy last, these score answers alone: {', '.join(fitting)}. With "
            "verifier.scores: steps each step is scored as if the answer ended with it.",
        )


def _read(file: Path) -> str:
    try:
        require_path(str(file))
        return read_text(file, MAX_SCHEMA_BYTES)
    except (OSError, Unreadable) as error:
        reason = "there is no such file" if isinstance(error, FileNotFoundError) else error
        raise ConfigError(
            f"The schema of the answer, {str(file)!r:.200}, cannot be read: {reason}.",
            hint="Give answer_schema the path of a JSON file, or the schema itself.",
        ) from error
