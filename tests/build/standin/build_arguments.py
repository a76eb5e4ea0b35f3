"""What trtllm-build would refuse, or change with a warning only, in a command for it."""

import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

FACTS = json.loads(Path(__file__).with_name("trtllm_build.json").read_text())
FLAGS: dict[str, dict[str, Any]] = FACTS["flags"]
"""Flags by name: `type`, and as far as there are any `default`, `choices`, `least` and so on.

`explicit` must be passed: its default is wrong for us, or may change. `still_needed` is why a
deprecated flag is used.
"""


def check_build_arguments(arguments: Sequence[str]) -> list[str]:
    """Problems of the arguments of trtllm-build; empty when they fit the facts.

    Stricter than the tool: every value that must not be left to a default has to be given, and each
    flag once, under its own name.
    """
    given: dict[str, list[str]] = {}
    problems: list[str] = []
    values: list[str] = []
    for argument in arguments:
        if argument.startswith("--"):
            if argument in given:
                problems.append(f"{argument} is given twice")
            values = given[argument] = []
        elif given:
            values.append(argument)
        else:
            problems.append(f"{argument!r} belongs to no flag")
    for name, found in given.items():
        if name in FLAGS:
            problems += (f"{name}: {problem}" for problem in _value_problems(FLAGS[name], found))
        else:
            problems.append(f"{name} is not a flag of trtllm-build {FACTS['tensorrt_llm']}")
    explicit = (name for name, flag in FLAGS.items() if flag.get("explicit"))
    problems += (f"{name} is missing" for name in explicit if name not in given)
    given_one = {name: found[0] for name, found in given.items() if len(found) == 1}
    return problems + _conflicts(given_one)


def _value_problems(flag: Mapping[str, Any], values: Sequence[str]) -> Iterable[str]:
    if flag.get("deprecated") and "still_needed" not in flag:
        yield "is deprecated"
    if flag["type"] == "switch":
        if values:
            yield f"takes no value, but has {' '.join(values)!r}"
        return
    if len(values) != 1 and (flag["type"] != "texts" or not values):
        yield f"takes one value, but has {len(values)}"
        return
    for value in values:
        if not value:
            yield "is empty"
        elif "choices" in flag and value not in flag["choices"]:
            yield f"{value!r} is none of {', '.join(flag['choices'])}"
        elif flag["type"] == "int":
            yield from _integer_problems(flag, value)


def _integer_problems(flag: Mapping[str, Any], value: str) -> Iterable[str]:
    if not (value.isascii() and value.isdecimal()):
        yield f"{value!r} is not a whole number"
    elif int(value) < flag.get("least", 0):
        yield f"{value} is less than {flag['least']}"
    elif flag.get("power_of_two") and int(value) & (int(value) - 1):
        yield f"{value} is not a power of two"


def _conflicts(given: Mapping[str, str]) -> list[str]:
    """Combinations that the builder refuses, or changes with a warning only."""
    problems = []
    if given.get("--context_fmha") == "disable":
        for name in ("--use_paged_context_fmha", "--use_fp8_context_fmha"):
            if given.get(name) == "enable":
                problems.append(f"{name} is switched off by --context_fmha disable")
    if given.get("--multiple_profiles") == "enable" and "--opt_num_tokens" in given:
        problems.append("--multiple_profiles enable excludes --opt_num_tokens")
    sizes = {n: int(v) for n, v in given.items() if v.isascii() and v.isdecimal()}
    for name, limit in (
        ("--max_input_len", "--max_seq_len"),
        ("--opt_num_tokens", "--max_num_tokens"),
        ("--tokens_per_block", "--max_num_tokens"),
    ):
        if name in sizes and limit in sizes and sizes[name] > sizes[limit]:
            problems.append(f"{name} is larger than {limit} ({sizes[limit]})")
    if {"--max_num_tokens", "--max_batch_size", "--max_seq_len"} <= sizes.keys():
        most = sizes["--max_batch_size"] * sizes["--max_seq_len"]
        if sizes["--max_num_tokens"] > most:
            problems.append(f"--max_num_tokens is clipped to max_batch_size x max_seq_len ({most})")
    return problems
