"""Write the reference pages that follow from the code, such as that of the command line.

`scripts/run reference` writes docs/reference/cli.md, deployment.md and json-output.schema.json.
With --check it fails if one of them would change, as a test has it.
"""

from __future__ import annotations

import dataclasses
import html
import inspect
import json
import re
import sys
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, get_args, get_type_hints

import msgspec
from pydantic import BaseModel
from typer import Context
from typer.cli import get_docs_for_click
from typer.main import get_command

from tts.base import errors
from tts.build.spec import (
    Deployment,
    EngineSpec,
    ExecutionSpec,
    GeneratorSpec,
    KvCache,
    MeasuredOn,
    RemoteSpec,
    RoleSpec,
    ServerSpec,
    StartedSpec,
    Template,
    TensorRTEngine,
    TensorRTSpec,
    VerifierCalibration,
    VerifierCommand,
    VerifierFunction,
    VerifierSpec,
)
from tts.build.spec.critique import CritiqueSpec, VerdictSpec
from tts.build.spec.engine import CalibrationSpec
from tts.build.spec.generator import ThinkingSpec
from tts.build.spec.section import field_doc
from tts.cli import app, ending
from tts.cli.documents import DOCUMENTS, ERROR
from tts.strategies.names import STRATEGY_NAMES

ROOT = Path(__file__).resolve().parents[1]
FOLDER = ROOT / "docs" / "reference"
Rows = list[list[str]]

_WRITTEN = "<!-- Written by `scripts/run reference`; do not edit. -->"
_SCHEMA = "json-output.schema.json"
_OPTION = re.compile(r"^\* `-.*$", re.M)
_USAGE = re.compile(r"^```text\n.*?^```$", re.M | re.S)
_DEFAULT = r"  \[default: \(?(.*?)\)?(?:; (?:x>=[01]|(\S+)))?\]$"
_REWRITTEN = {
    r"^\* `(-h, --help|--help|--json)`.*\n": "",  # of every command
    r"^\* `DEPLOYMENT <str>`: A deployment file or a bundled name\.(  \[required\])?\n": "",
    r"^\*\*(Arguments|Options)\*\*:\n\n": "",
    r"^(\* `[^`<]*?) <(str|path|int|float|int range|float range|list.*?)>`": r"\1`",
    r"(?<=\w)\[(?=:)": r"\[",  # would begin a link
    r"  \[x>=[01]\]$": "",
    r"^## `(.*)`$": r"### \1",
}
_BRIEF = 8
"""An option of up to so many words is repeated by each command that has it."""
_UNBOUNDED = 10**5
"""A limit from here on is one of the machine, which nobody meets."""


def pages() -> dict[str, str]:
    """The text of each generated file, by its name below docs/reference."""
    return {
        "cli.md": command_line(),
        "deployment.md": deployment_file(),
        _SCHEMA: json.dumps(json_schema(), indent=1, ensure_ascii=False) + "\n",
    }


def command_line() -> str:
    """Every command that `tts --help` shows, as typer documents it, by the panels of the help."""
    program: Any = get_command(app)
    panels: dict[str, list[str]] = {}
    for name, command in program.commands.items():
        if not command.hidden:
            panels.setdefault(command.rich_help_panel, []).extend(_commands(name, command))
    options = Counter(
        line for each in panels.values() for text in each for line in _OPTION.findall(text)
    )
    common = {line for line, uses in options.items() if uses > 1 and len(line.split()) > _BRIEF}
    parts = [
        "# Command line",
        _WRITTEN,
        "`tts COMMAND --help` prints the same. DEPLOYMENT is a deployment file or the name of a "
        "bundled one, such as `demo`; RUN is a run folder. Commands with results take `--json` "
        "and print one document, for programs: [JSON output](#json-output). `tts --quiet` "
        "prints results and errors only, `tts --verbose` also log messages and tracebacks. "
        "Defaults stand in brackets.",
    ]
    for panel, commands in panels.items():
        parts += [f"## {panel}", *(_refer(text, common) for text in commands)]
    parts += ["## Options of several commands", "\n".join(sorted(common))]
    return "\n\n".join([*parts, *exit_codes(), *json_output()]) + "\n"


def _in_brackets(match: re.Match[str]) -> str:
    """A default of an option, and its limits."""
    return f" ({'; '.join(filter(None, match.groups()))})"


def _refer(text: str, common: set[str]) -> str:
    """A command's text, with its common options as one line that leads to where they stand."""
    names = [f"`{_name(line)}`" for line in _OPTION.findall(text) if line in common]
    lines = [line for line in text.split("\n") if line not in common]
    if names:
        last = max(i for i, line in enumerate(lines) if line.startswith(("* ", "```")))
        line = f"* {', '.join(names)}: [as for other commands](#options-of-several-commands)"
        lines[last + 1 : last + 1] = [line] if lines[last].startswith("* ") else ["", line]
    return "\n".join(lines)


def _name(option: str) -> str:
    """The long name in an option's line."""
    return "--" + option.partition("--")[2].partition("`")[0].split()[0]


def _commands(name: str, command: Any) -> Iterator[str]:
    """What typer says of a command, and of its subcommands that are not hidden."""
    context = Context(command, info_name=name)
    page = get_docs_for_click(obj=command, ctx=context, indent=2, name=name, call_prefix="tts")
    page = html.unescape(page.partition("**Commands**")[0])
    page = page.replace(", ".join(STRATEGY_NAMES), "A [strategy](strategies.md)")
    for pattern, text in _REWRITTEN.items():
        page = re.sub(pattern, text, page, flags=re.M)
    page = page.replace("**Usage**:\n\n", "").replace("```console\n$ ", "```text\n")
    page = re.sub(_DEFAULT, _in_brackets, page, flags=re.M)
    head, _, examples = page.partition("Examples:\n")
    if examples:  # they stand in the place of the usage
        lines = [line.strip() for line in examples.strip().splitlines()]
        head = _USAGE.sub(lambda _: "\n".join(["```text", *lines, "```"]), head)
    yield _linked(re.sub(r"\n{3,}", "\n\n", head)).strip()
    for called, sub in getattr(command, "commands", {}).items():
        if not sub.hidden:
            yield from _commands(f"{name} {called}", sub)


_SECTIONS: tuple[tuple[str, str, type[BaseModel]], ...] = (
    ("The file", "", Deployment),
    ("generator", "", GeneratorSpec),
    ("verifier", "", VerifierSpec),
    ("verifier, a Python function", "Nothing is built or served for it.", VerifierFunction),
    ("verifier, a program", "Nothing is built or served for it.", VerifierCommand),
    ("execution", "How programs run that execute what a model wrote.", ExecutionSpec),
    ("generator and verifier", "Fields of every model.", RoleSpec),
    (
        "generator and verifier, compiled here",
        "A section without `url` names a checkpoint, which `tts build-engines` compiles.",
        EngineSpec,
    ),
    (
        "generator and verifier, started",
        "A section of target vllm, sglang, llama.cpp or trtllm-serve. `tts plan` sizes the server, "
        "and prints its command line.",
        StartedSpec,
    ),
    (
        "generator and verifier, on a server of their own",
        "A section with `url` names an engine that already runs: vLLM, SGLang, llama.cpp or "
        "trtllm-serve.",
        RemoteSpec,
    ),
    ("generator.kv_cache, verifier.kv_cache", "", KvCache),
    ("generator.tensorrt, verifier.tensorrt", "", TensorRTEngine),
    ("generator.tensorrt.calibration, verifier.tensorrt.calibration", "", CalibrationSpec),
    ("generator.thinking", "", ThinkingSpec),
    ("verifier.calibration", "", VerifierCalibration),
    ("verifier.calibration.measured", "", MeasuredOn),
    ("verifier.critique", "", CritiqueSpec),
    ("verifier.critique.verdict", "", VerdictSpec),
    ("verifier.template", inspect.getdoc(Template) or "", Template),
    ("server", "", ServerSpec),
    ("tensorrt", "", TensorRTSpec),
)


def deployment_file() -> str:
    """Every section and field of a deployment file, and where bundled ones are."""
    parts = [
        "# Deployment file",
        _WRITTEN,
        "One YAML file describes a deployment: both models, their batching limits and the server. "
        "Relative paths start at the file. `tts init` writes one for your models; "
        "`tts lint DEPLOYMENT` checks it. Brackets hold a field's type and default. Sizes are in "
        "tokens unless the description says otherwise. An unknown field is an error.",
    ]
    kinds: list[type[BaseModel]] = [EngineSpec, StartedSpec, RemoteSpec]
    shared = [*RoleSpec.model_fields]
    common = shared + [name for each in kinds for name in each.model_fields]
    elsewhere = dict.fromkeys(kinds, shared)
    elsewhere |= {GeneratorSpec: common, VerifierSpec: common}
    for heading, text, model in _SECTIONS:
        parts += [f"## {heading}", *filter(None, [_line(text)])]
        schema = model.model_json_schema()
        lines = []
        for name, field in schema["properties"].items():
            if name not in elsewhere.get(model, ()):
                default = "required" if name in schema.get("required", ()) else _default(field)
                kind = _type(field) + (f"; {default}" if default else "")
                lines.append(f"* `{name}` ({kind}): {_line(field_doc(name, model))}")
        parts.append("\n".join(lines))
    parts += [
        "## Bundled deployments",
        "Every command takes the names that `tts list deployments` prints: the files in "
        "`engines/deployments/`. Copy one to start your own.",
    ]
    return "\n\n".join(parts) + "\n"


def _default(field: dict[str, Any]) -> str:
    """A default as a file would say it; nothing where leaving it out says it best."""
    value = field.get("default")
    unsaid = value in (None, [], {}) or isinstance(value, dict)
    return "" if unsaid else f"`{json.dumps(value)}`"


def _type(schema: dict[str, Any]) -> str:
    """A JSON Schema in words, with its limits."""
    if kinds := schema.get("anyOf", schema.get("oneOf")):
        words = [_type(each) for each in kinds if each.get("type") != "null"]
        return _either(dict.fromkeys(words))
    if choices := schema.get("enum", [schema["const"]] if "const" in schema else []):
        return _either(f"`{choice}`" for choice in choices)
    if "items" in schema:
        return f"list of {_type(schema['items'])}"
    if "additionalProperties" in schema:
        return "mapping"
    names = {"string": "path" if "path" in schema.get("format", "") else "text", None: "section"}
    kind = names.get(schema.get("type"), schema.get("type", ""))
    low, high = schema.get("minimum"), schema.get("maximum", _UNBOUNDED)
    if "exclusiveMinimum" in schema:
        kind += f" > {schema['exclusiveMinimum']:g}"
    if high < _UNBOUNDED:
        return f"{kind} {'≤' if low is None else f'{low:,}..'}{high:,}"
    return kind if low is None else f"{kind} ≥{low:,}"


def _either(words: Iterable[str]) -> str:
    """Alternatives in words: a, b or c."""
    *first, last = words
    return f"{', '.join(first)} or {last}" if first else last


def json_output() -> list[str]:
    """What commands print with --json, in words; the schema says the rest."""
    lists = [f"`{command}`" for command, document in DOCUMENTS.items() if get_args(document)]
    others = [f"`{command}`" for command, document in DOCUMENTS.items() if not get_args(document)]
    return [
        "## JSON output",
        "With `--json` a command prints one JSON document on stdout and everything else on "
        "stderr. Every field is always there; null: missing, unknown or not a number. Fields may "
        "be added; a name changes only with a new version, and the changelog says so. Times are "
        "in seconds (`_s`), sizes in bytes (`_bytes`), shares from 0 to 1. "
        f"[{_SCHEMA}]({_SCHEMA}) is the JSON Schema of every document, with a description of "
        "each field: that of `tts solve` is at `documents`, `tts solve`; that of an error at "
        "`error`.",
        f"One document: {', '.join(others)}. An array of them: {', '.join(lists)}.",
    ]


def json_schema() -> dict[str, Any]:
    """The schema of every document, with what the source says of each field."""
    documents = [*DOCUMENTS.values(), ERROR]
    schemas, definitions = msgspec.json.schema_components(
        documents, schema_hook=lambda kind: {"title": kind.__name__}, ref_template="#/$defs/{name}"
    )
    for kind in _objects(documents, set()):
        full = f"{kind.__module__}.{kind.__qualname__}"  # its name where two types bear the same
        definition = definitions[full if full in definitions else kind.__name__]
        definition.pop("title")
        definition["description"] = _about(kind)
        for field in dataclasses.fields(kind) if dataclasses.is_dataclass(kind) else ():
            if not field.metadata.get("json", True):
                del definition["properties"][field.name]
        for name, schema in definition["properties"].items():
            schema.pop("default", None)  # every field is always there
            if text := _in_json(field_doc(name, kind)):
                schema["description"] = text
        definition["required"] = [*definition["properties"]]
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "documents": dict(zip(DOCUMENTS, schemas, strict=False)),
        "error": schemas[-1],
        "$defs": definitions,
    }


def _objects(annotations: Iterable[Any], kinds: set[type]) -> set[type]:
    """The types with fields that annotations name, however deep."""
    for annotation in annotations:
        _objects(get_args(annotation), kinds)
        fields = hasattr(annotation, "__struct_fields__") or dataclasses.is_dataclass(annotation)
        if fields and annotation not in kinds:
            kinds.add(annotation)
            _objects(get_type_hints(annotation, include_extras=True).values(), kinds)
    return kinds


def _about(kind: type) -> str:
    return _in_json((inspect.getdoc(kind) or "").partition("\n\n")[0])


def _in_json(text: str) -> str:
    """A description in one line and the words of JSON, where null stands for None."""
    return re.sub(r"\bNone\b", "null", " ".join(text.split()))


_CODES = {
    0: "The command did what it was asked to do.",
    1: "It failed; the message says where and what to do. Also when memory, processes or open "
    "files run out.",
    2: "Something that you gave is wrong: an option, a deployment, a dataset, a checkpoint, "
    "the folder of a run.",
    ending.BUG: "An internal error; the message names a file with the traceback.",
    ending.INTERRUPTED: "Ctrl-C.",
    ending.NO_READER: "The program reading the output closed it, as in `tts report RUN | head -1`.",
    ending.TERMINATED: "SIGTERM, handled like Ctrl-C.",
}


def exit_codes() -> list[str]:
    """The exit codes of commands, and which errors of the Python API have them."""
    names: dict[int, list[str]] = {code: [] for code in sorted(_CODES)}
    for name, error in vars(errors).items():
        if isinstance(error, type) and issubclass(error, errors.TtsError):
            names[error.exit_code].append(f"`{name}`")
    names[1] = ["every other `TtsError`"]
    codes = [[str(code), _CODES[code], ", ".join(names[code])] for code in names]
    return [
        "## Exit codes",
        _table(["exit code", "meaning", "errors in Python"], codes),
        "Errors go to stderr: what went wrong, then what to do about it (`message` and `hint` of "
        "a `tts.TtsError`).",
    ]


def _line(text: str) -> str:
    """A docstring as one line of Markdown."""
    parts = " ".join(text.split()).split("`")
    escaped = [
        part if i % 2 else part.replace("[", r"\[").replace("<", "&lt;")
        for i, part in enumerate(parts)
    ]
    return _linked("`".join(escaped))


def _linked(text: str) -> str:
    """A text with links to the pages that it names, from docs/reference."""

    def link(match: re.Match[str]) -> str:
        folder, page, anchor = match[1], match[2], match[3] or ""
        if not (ROOT / folder / page).exists():
            return f"`{match[0]}`"
        up = "../" if folder == "docs" else "../../benchmarks/"
        return f"[{folder}/{page}]({up}{page}{anchor})"

    return re.sub(r"(?<![\w`/\[])(docs|benchmarks)/([\w./-]+\.md)(#[\w-]+)?", link, text)


def _table(header: list[str], rows: Rows) -> str:
    """A table in Markdown; columns that are empty in every row are left out."""
    places = [place for place in range(len(header)) if any(row[place] for row in rows)]
    lines = [[header[place] for place in places], ["---"] * len(places)]
    lines += [[row[place].replace("|", r"\|") for place in places] for row in rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def main() -> None:
    """Write the pages; with --check, fail if one of them is not what would be written."""
    files = {FOLDER / name: text for name, text in pages().items()}
    stale = [file for file, text in files.items() if not file.exists() or file.read_text() != text]
    if "--check" in sys.argv[1:]:
        names = ", ".join(file.name for file in stale)
        sys.exit(f"error: run scripts/run reference: {names} would change" if stale else 0)
    for file in stale:
        file.write_text(files[file], encoding="utf-8")
        print(f"written: {file.relative_to(ROOT)}")


if __name__ == "__main__":
    main()
