"""YAML as deployments use it: JSON's types, merge keys and aliases; bounded, each mistake placed.

Plain YAML has more than a deployment needs, and its parser trusts it: a field given twice (the last
would count), keys that are lists, dates, aliases of aliases that stand for billions of values.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import yaml

from .input_files import Unreadable, require_text

MAX_DEPTH = 32
MAX_VALUES = 10_000
"""Values in one text, each alias counted as what it stands for."""


def parse_yaml(text: str) -> Any:
    """The value of a YAML text; raises Unreadable naming line and column."""
    try:
        return yaml.load(text, Loader=_Loader)
    except yaml.YAMLError as error:
        raise Unreadable(str(error).replace('in "<unicode string>", ', "at ")) from error


def _wrong(node: yaml.Node, problem: str) -> yaml.constructor.ConstructorError:
    return yaml.constructor.ConstructorError(None, None, problem, node.start_mark)


class _Loader(yaml.SafeLoader):
    """Bounded while nodes are composed, before anything is made of them."""

    def __init__(self, stream: str) -> None:
        super().__init__(stream)
        self._depth = 0
        self._values = 0
        self._sizes: dict[yaml.Node, int] = {}
        """How many values each complete node stands for, itself included."""

    def compose_node(self, parent: yaml.Node | None, index: Any) -> yaml.Node | None:
        mark = self.peek_event().start_mark  # type: ignore[no-untyped-call]
        is_alias = self.check_event(yaml.AliasEvent)
        before = self._values
        self._values += 1
        self._depth += 1
        if self._depth > MAX_DEPTH:
            raise yaml.composer.ComposerError(
                None, None, f"values are nested more than {MAX_DEPTH} levels deep", mark
            )
        node = super().compose_node(parent, index)
        assert node is not None
        if is_alias and node not in self._sizes:
            raise yaml.composer.ComposerError(None, None, "an alias stands for itself", mark)
        if is_alias:
            self._values += self._sizes[node]
        else:
            self._sizes[node] = self._values - before
        if self._values > MAX_VALUES:
            raise yaml.composer.ComposerError(
                None, None, f"there are more than {MAX_VALUES:,} values, aliases counted", mark
            )
        self._depth -= 1
        return node

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        if not isinstance(node, yaml.MappingNode):
            raise _wrong(node, f"the tag {node.tag} is for mappings")
        seen = set()
        for key, _ in node.value:
            if not isinstance(key, yaml.ScalarNode):
                raise _wrong(key, "the name of a field must be a text, not a list or a mapping")
            if key.value in seen:
                raise _wrong(key, f"the field {key.value!r:.100} is given twice")
            seen.add(key.value)
        return super().construct_mapping(node, deep)


def _scalar(
    kind: str, read: Callable[[Any, yaml.ScalarNode], Any]
) -> Callable[[_Loader, yaml.Node], Any]:
    """A reader of single values whose failures name the place."""

    def construct(loader: _Loader, node: yaml.Node) -> Any:
        if not isinstance(node, yaml.ScalarNode):
            raise _wrong(node, f"the tag {node.tag} is for single values")
        try:
            value = read(loader, node)
            if isinstance(value, str):
                require_text(value)
        except Unreadable as error:
            raise _wrong(node, str(error)) from error
        except (ValueError, KeyError, IndexError, OverflowError) as error:
            raise _wrong(node, f"{node.value!r:.60} is not {kind}") from error
        if isinstance(value, float) and not math.isfinite(value):
            raise _wrong(node, f"{node.value!r:.60} is not a finite number")
        return value

    return construct


def _refused(loader: _Loader, node: yaml.Node) -> None:
    raise _wrong(node, f"the tag {node.tag} means nothing here")


_Safe = yaml.SafeLoader
for _tag, _reader in {
    "int": _scalar("a whole number of at most 4,300 digits", _Safe.construct_yaml_int),
    "float": _scalar("a number", _Safe.construct_yaml_float),
    "bool": _scalar("true or false", _Safe.construct_yaml_bool),
    "str": _scalar("a text", _Safe.construct_yaml_str),
    # a date, and the sign "=", are texts like any other: no field takes anything else
    "timestamp": _scalar("a text", _Safe.construct_yaml_str),
    "value": _scalar("a text", _Safe.construct_yaml_str),
    **dict.fromkeys(("binary", "omap", "pairs", "set"), _refused),
}.items():
    _Loader.add_constructor(f"tag:yaml.org,2002:{_tag}", _reader)
