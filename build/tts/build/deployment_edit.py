"""Setting numbers in a deployment file and leaving the rest of it as it is."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Mapping
from pathlib import Path

import yaml

from . import paths
from .errors import ConfigError
from .spec import load_deployment

Field = tuple[str, ...]
"""A field's path, such as ("generator", "kv_cache", "tokens")."""


def require_writable(file: Path) -> None:
    """Raise ConfigError if a deployment file cannot, or must not, be changed."""
    if paths.is_installed(file):
        raise ConfigError(
            f"{file} belongs to the installed package and is not changed.",
            hint=f"Copy it, set its checkpoint paths, and name the copy: cp {file} .",
        )
    if not (os.access(file, os.W_OK) and os.access(file.parent, os.W_OK)):
        raise ConfigError(f"Cannot write {file}: permission denied")


def write_values(file: Path, values: Mapping[Field, int]) -> None:
    """Set fields of a deployment file; raises ConfigError and leaves the file as it was."""
    require_writable(file)
    new = file.with_name(f".{file.name}.new")  # beside it, so that the paths in it mean the same
    try:
        # bytes, so that line ends stay what they are
        new.write_bytes(with_values(file.read_bytes().decode(), values).encode())
        load_deployment(new)
        shutil.copymode(file, new)
        new.replace(file)
    except OSError as error:
        raise ConfigError(f"Cannot write {file}: {error}") from error
    finally:
        new.unlink(missing_ok=True)


def with_values(text: str, values: Mapping[Field, int]) -> str:
    """The text of a deployment with other values; comments, order and layout stay.

    Raises ConfigError if two fields are one through a YAML alias and need different values.
    """
    root = yaml.compose(text, Loader=yaml.SafeLoader)
    nodes: dict[int, tuple[yaml.Node, Field]] = {}  # by where they begin
    for field, value in values.items():
        node = _scalar(root, field)
        _, other = nodes.setdefault(node.start_mark.index, (node, field))
        if values[other] != value:
            raise ConfigError(
                f"{'.'.join(other)} and {'.'.join(field)} are one YAML alias, but their values "
                "differ.",
                hint=f"Write {field[-2]} out for each engine.",
            )
    for _, (node, field) in sorted(nodes.items(), reverse=True):
        text = _replaced(text, node, str(values[field]))
    return text


def _scalar(root: yaml.Node | None, fields: Field) -> yaml.Node:
    """The node of a field, which a deployment that has been loaded is known to have."""
    node = root
    for field in fields:
        assert isinstance(node, yaml.MappingNode)
        merged = [value for key, value in node.value if key.tag == "tag:yaml.org,2002:merge"]
        direct = [value for key, value in node.value if key.value == field]
        inherited = [
            value
            for base in merged
            for source in (base.value if isinstance(base, yaml.SequenceNode) else [base])
            for key, value in source.value
            if key.value == field
        ]
        node = (direct + inherited)[0]
    assert node is not None
    return node


def _replaced(text: str, node: yaml.Node, value: str) -> str:
    start, end = node.start_mark.index, node.end_mark.index
    after = text[end:]
    if comment := re.match(r"( {2,})#", after):  # a comment keeps its column where there is room
        space = max(2, len(comment[1]) - (len(value) - (end - start)))
        after = " " * space + after[comment.end(1) :]
    return text[:start] + value + after
