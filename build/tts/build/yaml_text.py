"""YAML 1.2 as deployments use it: `off` and `Yes` are texts, and a field is given once."""

from __future__ import annotations

from typing import Any

from ruamel.yaml import YAML
from ruamel.yaml.constructor import SafeConstructor
from ruamel.yaml.error import YAMLError

from .input_files import Unreadable


class _Constructor(SafeConstructor):
    """A date is a text like any other: no field takes anything else."""


_Constructor.add_constructor("tag:yaml.org,2002:timestamp", SafeConstructor.construct_yaml_str)


def parse_yaml(text: str) -> Any:
    """The value of a YAML text; raises Unreadable, with line and column where they are known."""
    yaml = YAML(typ="safe", pure=True)
    yaml.Constructor = _Constructor
    try:
        return yaml.load(text)
    except YAMLError as error:
        said = str(error).partition("\n\nTo suppress this check")[0]
        raise Unreadable(said.replace('in "<unicode string>", ', "at ")) from error
    except (ValueError, TypeError, RecursionError, OverflowError) as error:
        # what stands in a value, such as 5,000 digits, or how deep: neither has a place
        raise Unreadable(str(error)) from error
