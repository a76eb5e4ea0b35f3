"""Write the reference pages that follow from the code, such as that of the command line.

`scripts/run reference` writes docs/reference/cli.md, deployment.md, bundled-deployments.md,
json-output.md and exit-codes.md. A test compares the committed pages with what it writes.
"""

from __future__ import annotations

import dataclasses
import inspect
import json
import re
import sys
import types
from collections.abc import Iterable, Iterator
from enum import Enum
from pathlib import Path
from typing import Annotated, Any, Literal, Union, get_args, get_origin, get_type_hints

from pydantic import BaseModel
from pydantic.fields import FieldInfo
from pydantic_core import PydanticUndefined
from typer.main import get_command

from scripts import bundled_page
from tts.build import errors
from tts.build.spec import (
    Deployment,
    EngineSpec,
    FunctionVerifier,
    GeneratorSpec,
    KvCache,
    Labels,
    RemoteSpec,
    RoleSpec,
    ServerSpec,
    Template,
    TensorRTEngine,
    TensorRTSpec,
    VerifierSpec,
)
from tts.build.spec.field_docs import field_doc
from tts.build.spec.tensorrt import Calibration
from tts.build.tensorrt import step_failures
from tts.cli import app, ending
from tts.cli.documents.index import DOCUMENTS, ERROR, NAMES
from tts.serving.server import start_failures

ROOT = Path(__file__).resolve().parents[1]
FOLDER = ROOT / "docs" / "reference"
Rows = list[list[str]]

_WRITTEN = "<!-- Written by `scripts/run reference`; do not edit. -->"


def pages() -> dict[str, str]:
    """The text of each generated page, by its file name below docs/reference."""
    return {
        "cli.md": command_line(),
        "deployment.md": deployment_file(),
        "json-output.md": json_output(),
        "exit-codes.md": exit_codes(),
        "bundled-deployments.md": bundled(),
    }


# The command line


def command_line() -> str:
    """Every command that `tts --help` shows, with its arguments and options."""
    program = get_command(app)
    parts = [
        "# Command line",
        _WRITTEN,
        "`tts COMMAND --help` prints the same. DEPLOYMENT is a deployment file or the name of a "
        "bundled one, such as `demo`; RUN is a run folder. Commands that print results take "
        "`--json`: [JSON output](json-output.md).",
    ]
    shared = _table(_options(program), ["option", "value", "default", "description"])
    if shared:
        parts += ["## Options of tts itself", shared]
    for panel, commands in _by_panel(program).items():
        parts.append(f"## {panel}")
        for name, command in commands:
            parts += _command(f"tts {name}", command)
    return "\n\n".join(parts) + "\n"


def _by_panel(group: Any) -> dict[str, list[tuple[str, Any]]]:
    """The commands of a group in the order of its help, by panel."""
    found: dict[str, list[tuple[str, Any]]] = {}
    for name, command in group.commands.items():
        panel = getattr(command, "rich_help_panel", None)
        found.setdefault(panel if isinstance(panel, str) else "Commands", []).append(
            (name, command)
        )
    return found


def _command(name: str, command: Any) -> Iterator[str]:
    """The section of a command, and those of its subcommands."""
    yield f"### {name}"
    yield _prose(command.help or "")
    arguments = [each for each in _shown(command) if each.param_type_name == "argument"]
    words = [each.metavar or each.name.upper() for each in arguments]
    optional = [each for each in _shown(command) if each.param_type_name == "option"]
    usage = [name, *(["[OPTIONS]"] if optional else []), *words]
    subcommands = getattr(command, "commands", {})
    if subcommands:
        usage.append(
            "[COMMAND]" if getattr(command, "invoke_without_command", False) else "COMMAND"
        )
    yield f"```text\n{' '.join(usage)}\n```"
    rows = [
        [f"`{each.metavar or each.name.upper()}`", _default(each), _prose(each.help or "")]
        for each in arguments
    ]
    if rows:
        yield _table(rows, ["argument", "default", "description"])
    if options := _options(command):
        yield _table(options, ["option", "value", "default", "description"])
    if epilog := getattr(command, "epilog", None):
        yield _prose(epilog)
    for called, sub in subcommands.items():
        yield from _command(f"{name} {called}", sub)


def _shown(command: Any) -> list[Any]:
    """The parameters that help shows, but for those that every typer program has."""
    common = {"install_completion", "show_completion", "help"}
    return [each for each in command.params if each.name not in common]


def _options(command: Any) -> Rows:
    rows = []
    for each in _shown(command):
        if each.param_type_name == "option":
            names = ", ".join(f"`{name}`" for name in (*each.opts, *each.secondary_opts))
            help_text = _prose(each.help or "")
            if each.multiple and "several times" not in help_text:
                help_text = f"{help_text} May be given several times.".strip()
            rows.append([names, _value(each), _default(each), help_text])
    return rows


def _value(option: Any) -> str:
    """What an option takes: its choices, its metavar, or the kind of value; nothing for a flag."""
    if getattr(option, "is_flag", False) or getattr(option, "count", False):
        return ""
    annotation = getattr(getattr(option, "type_descriptor", None), "annotation", None)
    if get_origin(annotation) is list:
        (annotation,) = get_args(annotation)
    if isinstance(annotation, type) and issubclass(annotation, Enum):
        return ", ".join(f"`{member.value}`" for member in annotation)
    if get_origin(annotation) is Literal:
        return ", ".join(f"`{choice}`" for choice in get_args(annotation))
    if option.metavar:
        return f"`{option.metavar}`"
    kinds: dict[object, str] = {int: "integer", float: "number", Path: "path", str: "text"}
    kind = kinds.get(annotation, "text")
    low, high = getattr(option, "min", None), getattr(option, "max", None)
    return kind + (f", {_range(low, high)}" if low is not None or high is not None else "")


def _default(parameter: Any) -> str:
    if parameter.required:
        return "required"
    if getattr(parameter, "count", False):
        return ""
    shown = getattr(parameter, "show_default", True)
    if isinstance(shown, str):
        return _prose(shown)
    value = parameter.default
    if value is None or value is False or value == [] or callable(value):
        return ""
    if value is True:
        return "on"
    if isinstance(value, Enum):
        value = value.value
    if isinstance(value, (list, tuple)):
        return ", ".join(f"`{item}`" for item in value)
    return f"`{value}`"


# The deployment file

_SECTIONS: tuple[tuple[str, str, tuple[type[BaseModel], ...]], ...] = (
    ("The file", "", (Deployment,)),
    ("generator", "The model that writes steps.", (GeneratorSpec,)),
    ("verifier", "The process reward model that scores steps.", (VerifierSpec,)),
    (
        "verifier, a Python function",
        "A section with `function` stands for no model: nothing is built or served for it.",
        (FunctionVerifier,),
    ),
    (
        "generator and verifier, compiled here",
        "A section without `url` names a checkpoint, which `tts build-engines` compiles.",
        (EngineSpec, RoleSpec),
    ),
    (
        "generator and verifier, on a server of their own",
        "A section with `url` names an engine that already runs: vLLM, SGLang, llama.cpp or "
        "trtllm-serve.",
        (RemoteSpec, RoleSpec),
    ),
    ("generator.kv_cache, verifier.kv_cache", "", (KvCache,)),
    ("generator.tensorrt, verifier.tensorrt", "", (TensorRTEngine,)),
    ("generator.tensorrt.calibration, verifier.tensorrt.calibration", "", (Calibration,)),
    ("verifier.labels", "", (Labels,)),
    ("verifier.template", "", (Template,)),
    ("server", "", (ServerSpec,)),
    ("tensorrt", "", (TensorRTSpec,)),
)


def deployment_file() -> str:
    """Every section and field of a deployment file."""
    parts = [
        "# Deployment file",
        _WRITTEN,
        "One YAML file describes a deployment: both models, their batching limits and the server. "
        "Relative paths start at the file. `tts init` writes one for your models; "
        "`tts lint DEPLOYMENT` checks it; "
        "the bundled files below `engines/deployments/` are examples. Sizes are in tokens unless "
        "the description says otherwise. An unknown field is an error.",
    ]
    common: tuple[type[BaseModel], ...] = (EngineSpec, RoleSpec, RemoteSpec)
    for heading, text, models in _SECTIONS:
        parts.append(f"## {heading}")
        parts.append(text or _prose(inspect.getdoc(models[0]) or ""))
        rows: dict[str, list[str]] = {}
        for model in models:
            shared = set[str]()
            if models[0] in (GeneratorSpec, VerifierSpec):
                shared = {name for each in common for name in each.model_fields}
            for name, field in model.model_fields.items():
                if name not in shared:
                    rows.setdefault(name, _field(name, field, model))
        parts.append(_table(list(rows.values()), ["field", "type", "default", "description"]))
    return "\n\n".join(parts) + "\n"


def _field(name: str, field: FieldInfo, model: type[BaseModel]) -> list[str]:
    default = "required"
    if not field.is_required():
        default = _yaml(field.get_default(call_default_factory=True))
    return [
        f"`{name}`",
        _type(field.annotation, field.metadata),
        default,
        _prose(field_doc(name, model)),
    ]


def _yaml(value: object) -> str:
    """A default as a file would say it; nothing where leaving it out says it best."""
    if value is None or value == () or value == {} or isinstance(value, BaseModel):
        return ""
    if value is PydanticUndefined:
        return "required"
    if isinstance(value, bool):
        return f"`{str(value).lower()}`"
    return f"`{value!r}`".replace("'", '"') if value in ("\n\n", "+", "-") else f"`{value}`"


def _type(annotation: Any, metadata: Iterable[object] = ()) -> str:
    """An annotation in words, with the limits that its metadata state."""
    origin, arguments = get_origin(annotation), get_args(annotation)
    if origin is Annotated:
        return _type(arguments[0], arguments[1:])
    if origin is Literal:
        return " or ".join(f"`{choice}`" for choice in arguments)
    if origin in (Union, types.UnionType):
        kinds = [_type(each) for each in arguments if each is not type(None)]
        if metadata and len(kinds) == 1:
            kinds = [_type(next(each for each in arguments if each is not type(None)), metadata)]
        return " or ".join(dict.fromkeys(kinds))
    if origin is tuple:
        return f"list of {_type(arguments[0])}"
    if origin is dict:
        return "mapping"
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return "section"
    words = {int: "integer", float: "number", bool: "`true` or `false`", str: "text", Path: "path"}
    word = words.get(annotation, "number, text or boolean")
    low = high = None
    for limit in _flat(metadata):
        low = next((v for v in (getattr(limit, "ge", None), low) if v is not None), None)
        high = next((v for v in (getattr(limit, "le", None), high) if v is not None), None)
        if getattr(limit, "gt", None) is not None:
            word = f"{word} above {_number(limit.gt)}"
    if high is not None and high >= 10**9:
        high = None
    return word + (f", {_range(low, high)}" if low is not None or high is not None else "")


def _flat(metadata: Iterable[object]) -> Iterator[Any]:
    for each in metadata:
        yield from each.metadata if isinstance(each, FieldInfo) else [each]


def _range(low: float | None, high: float | None) -> str:
    if high is None:
        return f"at least {_number(low)}"
    return f"at most {_number(high)}" if low is None else f"{_number(low)} to {_number(high)}"


def _number(value: float | None) -> str:
    return f"{value:,g}" if isinstance(value, float) else f"{value:,}"


def bundled() -> str:
    """The deployments that come with tts, and the memory that is planned for them."""
    parts = [
        "# Bundled deployments",
        _WRITTEN,
        "Every command takes these names. The files are in `engines/deployments/`; copy one to "
        "start your own, or let `tts init` write it.",
        _table(bundled_page.model_rows(), bundled_page.MODELS),
        "## Memory on GPUs",
        "GiB per GPU, by [the memory plan](../explanation/memory.md) of `tts plan`: from shapes "
        "and data sheets, not measured. *Room* is how much more may be in use before a pool "
        "shrinks.",
        _table(bundled_page.gpu_rows(), bundled_page.GPU_MEMORY),
        "## Memory on a CPU",
        "MiB of each engine and of both with their server.",
        _table(bundled_page.host_rows(), bundled_page.HOST_MEMORY),
    ]
    return "\n\n".join(parts) + "\n"


# JSON output


def json_output() -> str:
    """What commands print with --json: a table for each, and for each kind of object in them."""
    parts = [
        "# JSON output",
        _WRITTEN,
        "With `--json` a command prints one JSON document on stdout and everything else on "
        "stderr. Exit codes are [the same](exit-codes.md). Every field is always there: null "
        "stands for a value that is missing or not known, and for a number that is none. Fields "
        "may be added; a name changes only with a new version, and the changelog says so. Times "
        "are in seconds (`_s`), sizes in bytes (`_bytes`), shares from 0 to 1.",
    ]
    for command, document in DOCUMENTS.items():
        (made,) = _objects_in(document)
        about = _about(made)
        if get_origin(document) is list:
            about += " The document is an array of these objects."
        parts += [f"## {command}", about, _object_table(made)]
    parts += ["## Errors", _about(ERROR), _object_table(ERROR), "## Objects"]
    nested = {inner for made in [*DOCUMENTS.values(), ERROR] for inner in _all_below(made)}
    by_name = {_object_name(each): each for each in nested}
    if len(by_name) < len(nested):
        raise SystemExit("error: tts.cli.documents.index.NAMES leaves objects with the same name")
    for name, each in sorted(by_name.items()):
        parts += [f"### {name}", _about(each), _object_table(each)]
    return "\n\n".join(parts) + "\n"


def _object_table(made: type) -> str:
    hints = get_type_hints(made, include_extras=True)
    rows = [
        [f"`{name}`", _json_type(hints[name]), _in_json(_prose(field_doc(name, made)))]
        for name in _object_fields(made)
    ]
    return _table(rows, ["field", "type", "description"])


def _object_fields(made: type) -> list[str]:
    if dataclasses.is_dataclass(made):
        return [f.name for f in dataclasses.fields(made) if f.metadata.get("json", True)]
    return list(getattr(made, "__struct_fields__", ()))


def _object_name(made: type) -> str:
    return NAMES.get(made, made.__name__)


def _about(made: type) -> str:
    return _in_json(_prose((inspect.getdoc(made) or "").partition("\n\n")[0]))


def _in_json(text: str) -> str:
    """A description in the words of JSON, where null stands for None."""
    return re.sub(r"\bNone\b", "null", text)


def _objects_in(annotation: Any) -> list[type]:
    """The types with fields that an annotation names."""
    if isinstance(annotation, type) and get_origin(annotation) is None:
        return [annotation] if _object_fields(annotation) else []
    return [found for each in get_args(annotation) for found in _objects_in(each)]


def _all_below(document: Any) -> set[type]:
    """The objects within a document, however deep, without its own."""
    found: set[type] = set()
    waiting = _objects_in(document)
    while waiting:
        made = waiting.pop()
        for hint in get_type_hints(made, include_extras=True).values():
            new = set(_objects_in(hint)) - found
            found |= new
            waiting += new
    return found


def _json_type(annotation: Any) -> str:
    """An annotation in the words of JSON."""
    origin, arguments = get_origin(annotation), get_args(annotation)
    if origin is Annotated:
        return _json_type(arguments[0])
    if origin is Literal:
        return " or ".join(f"`{json.dumps(choice)}`" for choice in arguments)
    if origin in (Union, types.UnionType):
        return " or ".join(dict.fromkeys(map(_json_type, arguments)))
    parts = [
        f"({kind})" if " or " in (kind := _json_type(each)) else kind
        for each in arguments
        if each is not Ellipsis
    ]
    if origin is tuple and Ellipsis not in arguments:
        return f"\\[{', '.join(parts)}]"
    if origin in (list, tuple):
        return f"array of {parts[0]}"
    if origin is not None and len(arguments) == 2:
        return f"object of {parts[1]}"
    if isinstance(annotation, type) and _object_fields(annotation):
        return f"[{_object_name(annotation)}](#{_object_name(annotation).lower()})"
    words = {int: "integer", float: "number", bool: "boolean", str: "text", type(None): "null"}
    return words.get(annotation, "any")


# Exit codes

_CODES = {
    0: "The command did what it was asked to do.",
    1: "It failed; the message says where and what to do. Also when memory, processes or open "
    "files run out.",
    2: "Something that you gave is wrong: an option, a deployment, a dataset, a checkpoint.",
    3: "`tts doctor --first-run`: nothing is wrong, but this machine cannot run all the steps.",
    ending.BUG: "An internal error; the message names a file with the traceback.",
    ending.INTERRUPTED: "Ctrl-C.",
    ending.NO_READER: "The program reading the output closed it, as in `tts report RUN | head -1`.",
    ending.TERMINATED: "SIGTERM, handled like Ctrl-C.",
}


def exit_codes() -> str:
    """Exit codes of commands, the errors of the Python API behind them, and failures on GPUs."""
    codes = [[str(code), meaning] for code, meaning in sorted(_CODES.items())]
    rows: Rows = []
    for name, error in vars(errors).items():
        if isinstance(error, type) and issubclass(error, errors.TtsError):
            base = "" if error is errors.TtsError else f"`{error.__mro__[1].__name__}`"
            meaning = _prose(inspect.getdoc(error) or "")
            rows.append([f"`{name}`", base, str(error.exit_code), meaning])
    unknown = {int(row[2]) for row in rows} - set(_CODES)
    if unknown:
        raise SystemExit(f"error: scripts/reference.py does not describe exit codes {unknown}")
    return (
        "\n\n".join(
            [
                "# Exit codes and errors",
                _WRITTEN,
                "## Exit codes",
                "Errors go to stderr as one sentence or more, followed by what to do about it. "
                "Only an internal error has a traceback, and it is kept in a file. With "
                "`--json` the error is also a [document on stdout](json-output.md#errors).",
                _table(codes, ["exit code", "meaning"]),
                "## Errors in Python",
                "All errors meant for a user derive from `TtsError` in `tts.build.errors`; "
                "`message` and `hint` are their two parts. `exit_code` is what a command returns "
                "for them.",
                _table(rows, ["error", "derives from", "exit code", "raised when"]),
                "## Failures on GPUs",
                "What `tts build-engines` and `tts serve` recognise in the logs of docker, "
                "TensorRT-LLM and Triton. They print the same, with the line of the log.",
                _failures("an engine is built", step_failures.KNOWN),
                _failures("the server starts", start_failures.KNOWN),
            ]
        )
        + "\n"
    )


def _failures(when: str, known: Iterable[tuple[str, str, str | None]]) -> str:
    rows = [[_filled(message), _filled(hint or "")] for _, message, hint in known]
    return _table(rows, [f"while {when}", "remedy"])


def _filled(text: str) -> str:
    """A message with ... for what the log says."""
    return _prose(re.sub(r"(?:\{\w+\})+\.?", "...", text))


# Markdown


def _prose(text: str) -> str:
    """A docstring or help text as Markdown: paragraphs on one line each, markup of rich removed.

    A paragraph of commands becomes a block of code.
    """
    text = re.sub(r"\[/?(bold|dim|italic|cyan|green|yellow|red|blue|link)[^\]]*\]", "", text)
    paragraphs = re.split(r"\n\s*\n", inspect.cleandoc(text.replace("\b\n", "")))
    return "\n\n".join(map(_paragraph, paragraphs))


def _paragraph(text: str) -> str:
    lines = [line.strip() for line in text.splitlines()]
    commands = [line for line in lines if line.startswith("tts ")]
    if commands and lines[-len(commands) :] == commands and len(lines) - len(commands) <= 1:
        before = [*lines[: -len(commands)], ""] if len(lines) > len(commands) else []
        return "\n".join([*before, "```text", *commands, "```"])
    joined = "`".join(  # a bracket would begin a link, but for one within backticks
        part if place % 2 else part.replace("[", r"\[").replace("<", "&lt;")
        for place, part in enumerate(" ".join(text.split()).split("`"))
    )
    return re.sub(r"(?<![\w`/\[])(docs|benchmarks)/([\w./-]+\.md)(#[\w-]+)?", _link, joined)


def _link(found: re.Match[str]) -> str:
    """A page that a help text names, as a link from docs/reference."""
    folder, page, anchor = found[1], found[2], found[3] or ""
    if not (ROOT / folder / page).exists():
        return f"`{found[0]}`"
    up = "../" if folder == "docs" else "../../benchmarks/"
    return f"[{folder}/{page}]({up}{page}{anchor})"


def _table(rows: Rows, header: list[str]) -> str:
    """A table in Markdown; columns that are empty in every row are left out."""
    if not rows:
        return ""
    kept = [place for place in range(len(header)) if any(row[place] for row in rows)]
    lines = [[header[place] for place in kept], ["---"] * len(kept)]
    lines += [[_cell(row[place]) for place in kept] for row in rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _cell(text: str) -> str:
    return text.replace("|", r"\|").replace("\n\n", "<br>").replace("\n", " ")


def main() -> None:
    """Write the pages; with --check, fail if one of them is not what would be written."""
    stale = [
        name
        for name, text in pages().items()
        if not (FOLDER / name).exists() or (FOLDER / name).read_text(encoding="utf-8") != text
    ]
    if "--check" in sys.argv[1:]:
        if stale:
            sys.exit(f"error: run scripts/run reference: {', '.join(stale)} would change")
        return
    for name, text in pages().items():
        (FOLDER / name).write_text(text, encoding="utf-8")
    print(f"written: {', '.join(stale) or 'nothing, all pages are up to date'}")


if __name__ == "__main__":
    main()
