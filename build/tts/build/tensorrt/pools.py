"""Writing kv_cache.tokens of both engines into a deployment file, with nothing else changed."""

from __future__ import annotations

import re
import shutil
from collections.abc import Mapping
from pathlib import Path

import yaml

from .. import paths
from ..errors import ConfigError
from ..spec import Role, load_deployment


def write_pools(file: Path, tokens: Mapping[Role, int]) -> None:
    """Set both pools in a deployment file; raises ConfigError and leaves the file as it was."""
    if paths.is_installed(file):
        raise ConfigError(
            f"{file} belongs to the installed package and is not changed.",
            hint=f"Copy it, set its checkpoint paths, and plan the copy: cp {file} .",
        )
    new = file.with_name(f".{file.name}.new")  # beside it, so that the paths in it mean the same
    try:
        # bytes, so that line ends stay what they are
        new.write_bytes(with_pools(file.read_bytes().decode(), tokens).encode())
        load_deployment(new)
        shutil.copymode(file, new)
        new.replace(file)
    except OSError as error:
        raise ConfigError(f"Cannot write {file}: {error}") from error
    finally:
        new.unlink(missing_ok=True)


def with_pools(text: str, tokens: Mapping[Role, int]) -> str:
    """The text of a deployment with other pools; comments, order and layout stay.

    Raises ConfigError if both engines share one kv_cache through a YAML alias and need different
    values.
    """
    root = yaml.compose(text, Loader=yaml.SafeLoader)
    places = {role: _scalar(root, role, "kv_cache", "tokens") for role in tokens}
    spans = {(node.start_mark.index, node.end_mark.index) for node in places.values()}
    if len(spans) < len(places) and len(set(tokens.values())) > 1:
        raise ConfigError(
            "generator.kv_cache and verifier.kv_cache are one YAML alias, but their pools differ.",
            hint="Write kv_cache out for each engine.",
        )
    for role, node in sorted(places.items(), key=lambda item: -item[1].start_mark.index):
        text = _replaced(text, node, str(tokens[role]))
        if len(spans) < len(places):
            break
    return text


def _scalar(root: yaml.Node | None, *fields: str) -> yaml.Node:
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
