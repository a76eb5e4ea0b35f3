"""Where a fault is made: a deployment and all that is made of it, and what faults do to files."""

import random
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from tts.build import paths


class NotHere(Exception):
    """The fault cannot be made at this site."""


@dataclass(frozen=True)
class Site:
    """A deployment file, its checkpoints, and TTS_HOME with its engines and repository."""

    root: Path

    @property
    def file(self) -> Path:
        return self.root / "deployment.yaml"

    @property
    def manifests(self) -> Path:
        return self.root / "manifests"

    @property
    def data(self) -> dict[str, Any]:
        data: dict[str, Any] = yaml.safe_load(self.file.read_text())
        return data

    @property
    def on_gpus(self) -> bool:
        return self.data["target"] == "tensorrt"

    @property
    def built(self) -> Path:
        return paths.built_dir(self.data["name"])

    def checkpoint(self, role: str) -> Path:
        folder = self.root / self.data[role]["checkpoint"]
        return folder if folder.is_dir() else not_here()

    def engine(self, rng: random.Random) -> Path:
        folder = self.built / rng.choice(ROLES)
        return folder if folder.is_dir() else not_here()

    def edit(self, change: Callable[[dict[str, Any]], str]) -> str:
        data = self.data
        what = change(data)
        self.file.write_text(yaml.safe_dump(data))
        return what


Kind = Callable[[Site, random.Random], str]
ROLES = ["generator", "verifier"]


def not_here() -> Any:
    raise NotHere


def need_gpus(site: Site) -> None:
    if not site.on_gpus:
        raise NotHere


def flipped(file: Path, rng: random.Random) -> str:
    data = bytearray(file.read_bytes())
    at = rng.randrange(len(data))
    data[at] ^= 1 << rng.randrange(8)
    file.write_bytes(data)
    return f"{file.parent.name}/{file.name}: byte {at} changed"


def other_kind(path: Path) -> str:
    """A folder in place of a file, and the other way round."""
    if path.is_dir():
        shutil.rmtree(path)
        path.write_text("")
        return f"{path} is a file"
    path.unlink()
    path.mkdir()
    return f"{path} is a folder"


def altered(data: Any, rng: random.Random, kept: tuple[str, ...] = ()) -> str:
    """Change, remove or exchange any value of nested data, but for those below keys in `kept`."""
    places = [place for place in places_of(data, ()) if not set(kept) & set(place[2])]
    parent, key, path = rng.choice(places)
    old = parent[key]
    kind = rng.choice(["removed", "changed", "exchanged"])
    if kind == "exchanged" and key != "name":  # else it may be but another order
        others = [each for each in places if each[2][-1] == key and each[0][key] != old]
        if others and not isinstance(old, (dict, list)):
            other, _, _ = rng.choice(others)
            parent[key], other[key] = other[key], old
            return f"{path} exchanged"
    if kind == "removed" or isinstance(old, (dict, list)):
        del parent[key]
        return f"{path} removed"
    parent[key] = not old if isinstance(old, bool) else f"{old}1" if isinstance(old, str) else 12345
    return f"{path} changed"


def places_of(value: Any, path: tuple[Any, ...]) -> list[tuple[Any, Any, tuple[Any, ...]]]:
    """Each value in nested data: what holds it, its key there, and the keys that lead to it."""
    items = value.items() if isinstance(value, dict) else enumerate(value)
    found: list[tuple[Any, Any, tuple[Any, ...]]] = []
    for key, item in items:
        found.append((value, key, (*path, key)))
        if isinstance(item, (dict, list)):
            found += places_of(item, (*path, key))
    return found
