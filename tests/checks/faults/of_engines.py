"""Faults of the built engines and of the model repository."""

import random
import shutil
from collections.abc import Callable
from pathlib import Path

from tests.checks.faults.site import (
    Kind,
    Site,
    flipped,
    need_gpus,
    not_here,
    other_kind,
)


def engine_files(site: Site, rng: random.Random) -> list[Path]:
    folder = site.engine(rng)
    return sorted(file for file in folder.iterdir() if file.name != "manifest.json")


def engine_byte(site: Site, rng: random.Random) -> str:
    return flipped(rng.choice(engine_files(site, rng)), rng)


def engine_file_kind(site: Site, rng: random.Random) -> str:
    folder = site.engine(rng)
    return other_kind(rng.choice([folder, *folder.iterdir()]))


def engine_file_missing(site: Site, rng: random.Random) -> str:
    files = [file for file in engine_files(site, rng) if file.name != "config.json"]
    file = rng.choice(files or not_here())
    if rng.random() < 0.5:
        file.unlink()
        return f"{file} removed"
    file.write_bytes(file.read_bytes()[:-1])
    return f"{file} cut short"


def another_rank(site: Site, rng: random.Random) -> str:
    need_gpus(site)
    file = site.engine(rng) / f"rank{rng.choice([1, 2, 7, 10])}.engine"
    shutil.copyfile(file.with_name("rank0.engine"), file)
    return f"{file} added"


def in_repository(corrupt: Callable[[Path, random.Random], str]) -> Kind:
    """A fault of a model repository that is the site's."""

    def kind(site: Site, rng: random.Random) -> str:
        need_gpus(site)
        return corrupt(site.built / "model_repository", rng)

    return kind


def repository_file_kind(site: Site, rng: random.Random) -> str:
    need_gpus(site)
    folder = site.built / "model_repository"
    return other_kind(rng.choice([folder, *sorted(folder.rglob("*"))]))
