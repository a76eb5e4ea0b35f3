"""Finding deployment files and reading them; each mistake in one is explained by its place."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, get_args

from pydantic import BaseModel, ValidationError

from tts.base import paths
from tts.base.errors import ConfigError, did_you_mean
from tts.base.input_files import Unreadable, is_file, read_text, require_path
from tts.base.shown_text import shortened
from tts.base.user_paths import is_folder, is_there
from tts.base.yaml_text import parse_yaml

from .deployment import GENERATORS, VERIFIERS, Deployment, kind_of, with_targets
from .section import RoleSpec, names_repository
from .served import RemoteSpec, StartedSpec
from .text_verifier import ExecutionSpec, TextVerifier, VerifierCommand, VerifierFunction

MAX_BYTES = 1_000_000
"""The largest deployment file that is read."""


def load_deployment(name_or_file: str | Path) -> Deployment:
    """Read a deployment by its file, or by its name when it is a bundled one.

    Nothing is written or fetched. Paths come back absolute; the name of a tokenizer on the Hugging
    Face hub stays as it is until `tts.build.resolve`. Raises ConfigError naming the field's path,
    its value and what is allowed.
    """
    file = deployment_file(name_or_file)
    deployment = _with_prompt(_with_absolute_paths(_read(file), file.parent), file.parent)
    return deployment.read_from(file, argument=str(name_or_file))


def _read(file: Path) -> Deployment:
    try:
        text = read_text(file, MAX_BYTES)
    except (OSError, Unreadable) as error:
        raise ConfigError(f"Cannot read the deployment file {file}: {error}") from error
    try:
        data = parse_yaml(text)
    except Unreadable as error:
        raise ConfigError(f"{file} is not valid YAML: {error}") from error
    if not isinstance(data, dict):
        raise ConfigError(f"{file} must hold fields, such as target: openvino.")
    try:
        return Deployment.model_validate(data)
    except ValidationError as error:
        with suppress(ValueError):  # explained as an error
            data = with_targets(data)
        raise ConfigError(
            f"{file} is not a valid deployment:\n{explain(error, Deployment, data=data)}"
        ) from error


def deployment_file(name_or_file: str | Path) -> Path:
    """The file of a deployment, given itself or by a bundled name; raises ConfigError if none."""
    try:
        require_path(str(name_or_file))
    except Unreadable as error:
        raise ConfigError(f"{str(name_or_file)!r:.100} names no deployment: {error}.") from error
    file = Path(name_or_file).expanduser()
    if is_file(file):
        return file.resolve()
    bundled = paths.deployments_dir() / f"{name_or_file}.yaml"
    if file.name == str(name_or_file) and is_file(bundled):
        return bundled
    if is_there(file):
        kind = "a folder" if is_folder(file) else "a pipe or a device"
        raise ConfigError(
            f"{file} is {kind}, not a deployment file.",
            hint="Name a YAML file; bundled deployments: "
            f"{', '.join(bundled_deployments()) or 'none'}.",
        )
    if file.name != str(name_or_file) or file.suffix in (".yaml", ".yml"):
        raise ConfigError(
            f"There is no file {name_or_file}.",
            hint=did_you_mean(file.stem, bundled_deployments())
            + "tts init writes a deployment file; tts list deployments names the bundled ones.",
        )
    raise ConfigError(
        f"There is no deployment {str(name_or_file)!r}: neither a file nor a bundled name.",
        hint=did_you_mean(file.name, bundled_deployments())
        + f"Bundled deployments: {', '.join(bundled_deployments()) or 'none'}.",
    )


def bundled_deployments() -> list[str]:
    """Names of the deployments that come with the toolkit."""
    return sorted(file.stem for file in paths.deployments_dir().glob("*.yaml"))


def _with_prompt(deployment: Deployment, base: Path) -> Deployment:
    """The deployment with the text of its verifier's prompt file."""
    verifier = deployment.verifier
    if isinstance(verifier, TextVerifier) or verifier.prompt_file is None:
        return deployment
    if verifier.prompt is not None:
        raise ConfigError("verifier.prompt and verifier.prompt_file are both given; remove one.")
    file = base / verifier.prompt_file.expanduser()
    try:
        verifier = verifier.with_prompt(read_text(file, MAX_BYTES))
    except (OSError, ValueError) as error:
        raise ConfigError(
            f"verifier.prompt_file: {file}: {getattr(error, 'strerror', None) or error}.",
            hint="docs/reference/verifiers.md describes the file; engines/deployments/prompts/ has "
            "one.",
        ) from error
    return deployment.model_copy(update={"verifier": verifier})


def _with_absolute_paths(deployment: Deployment, base: Path) -> Deployment:
    def absolute(path: Path, what: str) -> Path:
        try:
            return (base / path.expanduser()).resolve()
        except (OSError, RuntimeError) as error:  # a loop of symbolic links
            raise ConfigError(f"The {what} {path} has no path: {error}") from error

    update: dict[str, RoleSpec | TextVerifier | ExecutionSpec] = {
        "execution": deployment.execution.below(base)
    }
    if isinstance(deployment.verifier, VerifierFunction | VerifierCommand):
        update["verifier"] = deployment.verifier.below(base)
    for role, spec in deployment.roles().items():
        placed = {}
        for what in ("tokenizer", "checkpoint", "executable"):
            path = getattr(spec, what, None)
            by_name = isinstance(spec, RemoteSpec | StartedSpec) and (
                "/" not in str(path) if what == "executable" else names_repository(str(path))
            )
            if path is not None and not (by_name and not is_there(base / path)):
                placed[what] = absolute(path, what)
        update[role] = spec.model_copy(update=placed)
    return deployment.model_copy(update=update)


MAX_LINES = 20
"""Mistakes that one error lists."""
MAX_SHOWN = 200
"""Characters of a value in an error."""


def explain(
    error: ValidationError, model: type[BaseModel], within: str = "", *, data: object = None
) -> str:
    """One line per problem: the field's path (below `within`), its value, and what is allowed.

    `model` is what failed to be made, and `data` what of: a pydantic error does not say.
    """
    details = error.errors()
    lines = [f"  {_explain_one(detail, model, within, data)}" for detail in details[:MAX_LINES]]
    if len(details) > MAX_LINES:
        lines.append(f"  and {len(details) - MAX_LINES:,} more")
    return "\n".join(lines)


_REASONS = {
    "literal_error": "allowed: {expected}",
    "int_type": "must be a whole number",
    "int_parsing": "must be a whole number",
    "int_from_float": "must be a whole number",
    "float_type": "must be a number",
    "float_parsing": "must be a number",
    "greater_than_equal": "must be at least {ge}",
    "less_than": "must be below {lt}",
    "less_than_equal": "must be at most {le}",
    "finite_number": "must be a finite number",
    "invalid_key": "the name of a field must be a text",
    "bool_type": "must be true or false",
    "string_type": "must be a text",
    "string_too_short": "must not be empty",
    "string_pattern_mismatch": "must match {pattern}",
    "path_type": "must be a path",
    "model_type": "must be a mapping of fields",
    "dict_type": "must be a mapping of fields",
    "missing": "this field is required",
    "value_error": "{error}",
}


def reason_of(detail: Any) -> str:
    """What is allowed in place of a value, by one of the `errors` of a ValidationError."""
    template = _REASONS.get(detail["type"])
    return template.format(**detail.get("ctx", {})) if template else str(detail["msg"])


def _explain_one(detail: Any, model: type[BaseModel], within: str, data: object) -> str:
    where = ".".join([within] * bool(within) + [f"{part!s:.100}" for part in detail["loc"]])
    value, kind, reason = detail["input"], str(detail["type"]), reason_of(detail)
    if kind == "extra_forbidden":
        there = models_at(model, detail["loc"][:-1], data)
        fields = dict.fromkeys(name for each in there for name in each.model_fields)
        allowed = f"allowed here: {', '.join(fields) or 'nothing'}"
        question = did_you_mean(str(detail["loc"][-1]), fields).strip().lower()
        reason = f"unknown field; {question or allowed}"
    if kind == "string_type" and isinstance(value, bool):
        reason += "; put it in quotes"
    if kind == "literal_error":
        reason = reason.replace(" or ", ", ").replace("'", "")
    if kind == "missing" or isinstance(value, (dict, BaseModel)):
        return f"{where}: {reason}" if where else reason  # the reason names the fields it is about
    return f"{where} = {shortened(repr(value), MAX_SHOWN)}: {reason}"


def models_at(
    model: type[BaseModel], place: Sequence[str | int], data: object
) -> list[type[BaseModel]]:
    """Whatever models may stand at a place below `model`, made of `data`."""
    models = [model]
    for part in place:
        fields = [each.model_fields[part] for each in models if part in each.model_fields]
        if fields:  # otherwise an item of a list, a key, or which one of a union was tried
            models = [each for field in fields for each in _models_in(field.annotation)]
        data = data.get(part) if isinstance(data, dict) else None
        section = data if isinstance(data, dict) else {}
        kinds = [kind_of(section, kinds) for kinds in (GENERATORS, VERIFIERS)]
        models = [each for each in models if each in kinds] or models
    return models


def _models_in(annotation: object) -> Iterator[type[BaseModel]]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
    for argument in get_args(annotation):
        yield from _models_in(argument)
