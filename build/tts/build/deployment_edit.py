"""Setting fields of a deployment file and leaving the rest of it as it is."""

from __future__ import annotations

import io
import os
import re
import shutil
from collections.abc import Mapping
from functools import reduce
from pathlib import Path
from typing import Any

from ruamel.yaml import YAML
from ruamel.yaml.comments import CommentedMap, CommentedSeq

from tts.base import paths
from tts.base.errors import ConfigError

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


def write_values(file: Path, values: Mapping[Field, Any]) -> None:
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


def with_values(text: str, values: Mapping[Field, Any]) -> str:
    """The text of a deployment with other values; comments, order and quotes stay.

    Raises ConfigError if two fields are one through a YAML alias and need different values.
    """
    yaml = YAML()
    yaml.preserve_quotes = True
    yaml.width = 2**31
    if indented := re.search(r"^( +)\w", text, re.MULTILINE):
        yaml.map_indent = len(indented[1])
    line_end = "\r\n" if "\r\n" in text else "\n"
    data = yaml.load(text.replace("\r\n", "\n"))
    for (*sections, name), value in values.items():
        section = reduce(lambda place, section: place[section], sections, data)
        if name in section:
            section[name] = _written(value)
        else:  # before the last field: what follows that one belongs to the next section
            section.insert(max(0, len(section) - 1), name, _written(value))
    for field, value in values.items():
        if reduce(lambda place, name: place[name], field, data) != value:
            raise ConfigError(
                f"{'.'.join(field)} is one with another field through a YAML alias, but their "
                "values differ.",
                hint=f"Write {field[-2]} out for each engine.",
            )
    edited = io.StringIO(newline=line_end)
    yaml.dump(data, edited)
    return edited.getvalue()


def _written(value: Any) -> Any:
    """A value as it is written: mappings over several lines, lists on one."""
    if isinstance(value, Mapping):
        return CommentedMap({name: _written(each) for name, each in value.items()})
    if isinstance(value, list):
        line = CommentedSeq(value)
        line.fa.set_flow_style()
        return line
    return value
