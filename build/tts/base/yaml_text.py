"""YAML 1.2 as deployments use it: `off` and `Yes` are texts, and a field is given once."""

from __future__ import annotations

from typing import Any

from ruamel.yaml import YAML
from ruamel.yaml.constructor import SafeConstructor
from ruamel.yaml.error import MarkedYAMLError, YAMLError

from .input_files import Unreadable

MAX_SIZE = 1_000_000
"""Most characters and values of a text whose aliases are written out."""


class _Constructor(SafeConstructor):
    """A date is a text like any other: no field takes anything else. Aliases have a bound."""

    def construct_document(self, node: Any) -> Any:
        """The value of a text; raises Unreadable where its aliases, written out, are too long."""
        size, nodes = 0, [node]
        while nodes:
            value = nodes.pop().value
            size += 1 + (len(value) if isinstance(value, str) else 0)
            if size > MAX_SIZE:
                raise Unreadable("its aliases stand for too much: write out what they are for")
            for each in () if isinstance(value, str) else value:
                nodes += each if isinstance(each, tuple) else [each]
        return super().construct_document(node)


_Constructor.add_constructor("tag:yaml.org,2002:timestamp", SafeConstructor.construct_yaml_str)


def parse_yaml(text: str) -> Any:
    """The value of a YAML text; raises Unreadable, with line and column where they are known."""
    yaml = YAML(typ="safe", pure=True)
    yaml.Constructor = _Constructor
    try:
        return yaml.load(text)
    except MarkedYAMLError as error:
        problem, mark = str(error.problem).partition(" with value")[0], error.problem_mark
        raise Unreadable(f"line {mark.line + 1}, column {mark.column + 1}: {problem}") from error
    except (YAMLError, ValueError, TypeError, RecursionError, OverflowError) as error:
        # what stands in a value, such as 5,000 digits, or how deep: neither has a place
        raise Unreadable(str(error)) from error
