"""Known datasets on disk: downloaded once, checked against their SHA-256 whenever they are read."""

from __future__ import annotations

import hashlib
import os
import urllib.request
from collections.abc import Callable
from http.client import HTTPException
from pathlib import Path

from tts.build import paths
from tts.build.errors import DatasetError
from tts.build.input_files import is_file

from .known import KNOWN, KnownDataset

TIMEOUT_S = 30.0
"""How long a server may send nothing before the download fails."""


def cached_file(name: str) -> Path:
    """Where a known dataset is kept, whether it is there or not."""
    return paths.datasets_dir() / f"{name}{KNOWN[name].suffix}"


def known_file(
    name: str, known: KnownDataset, say: Callable[[str], None] = lambda line: None
) -> Path:
    """The file of a known dataset, downloaded if it is not here; raises DatasetError.

    `say` gets a line before a download.
    """
    file = cached_file(name)
    if is_file(file):
        try:
            data = file.read_bytes()
        except OSError as error:
            raise DatasetError(f"{file} cannot be read: {error.strerror or error}") from error
        _require_same(data, known, str(file), "Remove it: it is then downloaded again.")
        return file
    say(f"Downloading {name} ({known.size / 1e6:.1f} MB) from {known.url}")
    by_hand = f"Download it elsewhere, and put it here: {file}"
    data = _download(known, by_hand)
    _require_same(data, known, known.url, by_hand)
    _keep(data, file)
    return file


def _download(known: KnownDataset, by_hand: str) -> bytes:
    try:
        with urllib.request.urlopen(known.url, timeout=TIMEOUT_S) as answer:
            data: bytes = answer.read(known.size + 1)
    except (OSError, HTTPException) as error:  # URLError is an OSError
        reason = getattr(error, "reason", None) or error
        raise DatasetError(f"{known.url} cannot be downloaded: {reason}.", hint=by_hand) from error
    return data


def _require_same(data: bytes, known: KnownDataset, where: str, hint: str) -> None:
    """Raise DatasetError for content that is not the dataset's."""
    found = hashlib.sha256(data).hexdigest()
    if found != known.sha256:
        size = f"{len(data):,} bytes" if len(data) <= known.size else "more bytes"
        raise DatasetError(
            f"{where} is not the dataset: {size} with SHA-256 {found[:16]}..., but it has "
            f"{known.size:,} with {known.sha256[:16]}....",
            hint=hint,
        )


def _keep(data: bytes, file: Path) -> None:
    """Write a file whole, so that nobody ever reads half of it."""
    temporary = file.with_name(f".{file.name}.{os.getpid()}")
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        temporary.write_bytes(data)
        temporary.replace(file)
    except OSError as error:
        raise DatasetError(
            f"{file} cannot be written: {error.strerror or error}.",
            hint="Free some space or fix the permissions, or set TTS_HOME to another folder.",
        ) from error
