"""Whether the tools in the container are the ones that a build was written for.

The check of a build records what `trtllm-build --help` says and the signatures of the functions
that the conversion calls (`in_container.check`). This module compares them with the facts of the
contract and with the calls of this build, before an hour is spent on it. Pure, except that it reads
one file.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..errors import BuildError
from . import contract

_OPTION = re.compile(r"^ {1,4}(?P<names>-{1,2}\w.*?)(?: {2,}.*)?$")
_NAME = re.compile(r"^(?P<name>--?[\w-]+)(?:[ =](?P<value>.+))?$")
_CHOICES = re.compile(r"\{(?P<choices>[^}]*)\}")
_BY_POSITION = {"POSITIONAL_ONLY", "POSITIONAL_OR_KEYWORD"}
_BY_NAME = {"POSITIONAL_OR_KEYWORD", "KEYWORD_ONLY"}


@dataclass(frozen=True)
class ToolDifference:
    """One way in which the container is not what the contract says."""

    what: str
    stops: bool
    """Whether it would break the build or change its result."""


@dataclass(frozen=True)
class Option:
    """A flag of trtllm-build, as its help describes it."""

    takes_value: bool
    needs_value: bool
    choices: tuple[str, ...] | None


def require_interface(
    file: Path,
    arguments: Sequence[str],
    calls: Mapping[str, contract.CallMade],
    algorithms: Sequence[str],
) -> list[str]:
    """Compare a container's tools (`file`) with the parts of them that a build will use.

    `arguments` are those of trtllm-build, `calls` what the conversion calls, `algorithms` the
    members of QuantAlgo that it names. Returns the differences that do not matter to this build;
    raises BuildError naming those that do.
    """
    try:
        offered = json.loads(file.read_text(encoding="utf-8"))
        found = [
            *help_differences(offered["build_help"], arguments),
            *call_differences(offered["signatures"], calls),
            *algorithm_differences(offered["quant_algos"], algorithms),
        ]
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        return [f"what the container offers could not be compared: {error!r}"]
    if stopping := [difference.what for difference in found if difference.stops]:
        raise BuildError(
            f"This container is not the TensorRT-LLM {contract.TENSORRT_LLM} that builds were "
            "written for:\n" + "\n".join(f"  {what}" for what in stopping),
            hint="Nothing was built. Please report this with the build log, which holds the help "
            "of trtllm-build and the signatures; another tag of the container may differ.",
        )
    return [difference.what for difference in found]


def parse_help(text: str) -> dict[str, Option]:
    """The options in a help text of argparse, by each of their names."""
    options = {}
    for line in text.splitlines():
        if not (match := _OPTION.match(line)):
            continue
        # "--name VALUE, --other VALUE": a comma within {a,b} separates choices
        names = [_NAME.match(part.strip()) for part in re.split(r",\s+(?=-)", match["names"])]
        if not all(names):
            continue
        value = next((name["value"] for name in names if name and name["value"]), None)
        choices = _CHOICES.search(value) if value else None
        option = Option(
            takes_value=value is not None,
            needs_value=value is not None and not value.startswith("["),
            choices=tuple(choices["choices"].split(",")) if choices else None,
        )
        options.update({name["name"]: option for name in names if name})
    return options


def help_differences(text: str, arguments: Sequence[str]) -> Iterator[ToolDifference]:
    """How the flags in a help text differ from the contract's, and from those about to be given."""
    options, facts = parse_help(text), contract.build_flags()
    if not options:
        yield ToolDifference("the help of trtllm-build lists no flag that can be read", stops=False)
        return
    given = _given(arguments)
    for name, values in given.items():
        if (option := options.get(name)) is None:
            yield ToolDifference(f"trtllm-build has no {name}", stops=True)
        elif values and not option.takes_value:
            yield ToolDifference(f"{name} of trtllm-build takes no value; one is given", stops=True)
        elif option.needs_value and not values:
            yield ToolDifference(f"{name} of trtllm-build takes a value; none is given", stops=True)
        elif option.choices is not None:
            for value in values:
                if value not in option.choices:
                    taken = ", ".join(option.choices)
                    yield ToolDifference(
                        f"{name} of trtllm-build takes {taken}, not {value}", stops=True
                    )
            known = facts[name].choices if name in facts else None
            if known and set(known) != set(option.choices):
                taken = ", ".join(option.choices)
                yield ToolDifference(f"{name} of trtllm-build takes {taken}", stops=False)
    known_names = {alias for name, flag in facts.items() for alias in (name, *flag.aliases)}
    if gone := sorted(facts.keys() - options.keys() - given.keys()):
        yield ToolDifference(f"trtllm-build has no {', '.join(gone)} (not used)", stops=False)
    if new := sorted(options.keys() - known_names - {"-h", "--help"}):
        yield ToolDifference(f"trtllm-build also has {', '.join(new)}", stops=False)


def call_differences(
    signatures: Mapping[str, Mapping[str, Any]], calls: Mapping[str, contract.CallMade]
) -> Iterator[ToolDifference]:
    """Calls that the container's functions would refuse, and parameters that they have besides."""
    for name, made in calls.items():
        found = signatures[name]
        if not found["there"]:
            yield ToolDifference(f"TensorRT-LLM has no {name} ({found['text']})", stops=True)
            continue
        if "parameters" not in found:
            yield ToolDifference(
                f"{name} does not tell its parameters ({found['text']})", stops=False
            )
            continue
        kinds: dict[str, str] = {item["name"]: item["kind"] for item in found["parameters"]}
        by_position = [parameter for parameter, kind in kinds.items() if kind in _BY_POSITION]
        by_name = {parameter for parameter, kind in kinds.items() if kind in _BY_NAME}
        takes_any = "VAR_KEYWORD" in kinds.values()
        if len(by_position) < made.positional and "VAR_POSITIONAL" not in kinds.values():
            yield ToolDifference(
                f"{name} takes {len(by_position)} arguments by position", stops=True
            )
        for keyword in made.keywords:
            if keyword not in by_name and not takes_any:
                yield ToolDifference(f"{name} takes no {keyword}", stops=True)
        covered = {*by_position[: made.positional], *made.keywords}
        for item in found["parameters"]:
            if item["required"] and item["name"] not in covered:
                yield ToolDifference(f"{name} needs {item['name']}, which is not given", stops=True)
        if new := sorted(by_name - _known(name)):
            yield ToolDifference(f"{name} also takes {', '.join(new)}", stops=False)


def algorithm_differences(offered: Sequence[str], used: Sequence[str]) -> Iterator[ToolDifference]:
    """Which quantisation algorithms a container lacks or has beside those of the contract."""
    for name in used:
        if name not in offered:
            yield ToolDifference(f"TensorRT-LLM does not know the algorithm {name}", stops=True)
    if new := sorted(set(offered) - set(contract.quant_algos())):
        yield ToolDifference(f"TensorRT-LLM also knows {', '.join(new)}", stops=False)


def _given(arguments: Sequence[str]) -> dict[str, list[str]]:
    given: dict[str, list[str]] = {}
    for word in arguments:
        if word.startswith("--"):
            values = given[word] = []
        else:
            values.append(word)
    return given


def _known(name: str) -> set[str]:
    """The parameters that the contract knows of a call; those of the base class count as well."""
    facts = contract.python_calls()
    call = facts.get(name) or facts.get(f"PretrainedModel.{name.rpartition('.')[2]}")
    return {*call.positional, *call.keywords} if call else set()
