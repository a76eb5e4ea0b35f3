"""Public datasets by name: address, checksum and format of each.

A further one is a further entry. Addresses name a commit, so that what lies there does not change.
None is part of this package: the repositories say on which terms they publish them. Each is
downloaded once, and checked against its SHA-256 whenever it is read.

They lie on GitHub, which huggingface_hub (`hub`) does not download from; what the hub has of the
same names are other files.
"""

from __future__ import annotations

import hashlib
import os
import urllib.request
from collections.abc import Callable
from dataclasses import dataclass
from http.client import HTTPException
from pathlib import Path
from typing import Final

from tts.base import paths
from tts.base.choices import AnswerKind
from tts.base.errors import DatasetError
from tts.base.input_files import is_file

from .rows import Columns

TIMEOUT_S = 30.0
"""How long a server may send nothing before the download fails."""

_GITHUB = "https://raw.githubusercontent.com"
_GITHUB_LFS = "https://media.githubusercontent.com/media"


@dataclass(frozen=True)
class KnownDataset:
    """A dataset that can be downloaded: a JSONL file."""

    title: str
    url: str
    sha256: str
    size: int
    """Size of the file in bytes."""
    problems: int
    columns: Columns
    answers: AnswerKind


KNOWN: Final[dict[str, KnownDataset]] = {
    # the file that the hub's HuggingFaceH4/MATH-500 was made from; kept in Git LFS, whose pointer
    # in the repository says checksum and size
    "math-500": KnownDataset(
        "MATH-500: competition mathematics in five levels (Lightman et al., 2023)",
        f"{_GITHUB_LFS}/openai/prm800k/7ecc794703b2877f63226f2477a49b34f9b25163"
        "/prm800k/math_splits/test.jsonl",
        "35dc41080a3680858b27fa7e0533d2d547825316fc5dafe5d316f4ccc5a06132",
        446_564,
        500,
        {"problem": "problem", "answer": "answer", "id": "unique_id", "level": "level"},
        "text",
    ),
    "gsm8k": KnownDataset(
        "GSM8K, test: grade school word problems (Cobbe et al., 2021)",
        f"{_GITHUB}/openai/grade-school-math/3101c7d5072418e28b9008a6636bde82a006892c"
        "/grade_school_math/data/test.jsonl",
        "3730d312f6e3440559ace48831e51066acaca737f6eabec99bccb9e4b3c39d14",
        749_738,
        1319,
        {"problem": "question", "answer": "answer"},
        "gsm8k",
    ),
    "aime-2024": KnownDataset(
        "AIME I and II, 2024: answers are whole numbers from 0 to 999",
        f"{_GITHUB}/QwenLM/Qwen2.5-Math/a45202bd16f1ec06f433442dc1152d0074773465"
        "/evaluation/data/aime24/test.jsonl",
        "af2b8bd2aa911b6333ad0df32f3ca05c7ae8ed10f1731f4372c8ae26990bf7ac",
        156_944,
        30,
        {"problem": "problem", "answer": "answer", "id": "id"},
        "number",
    ),
}


def cached_file(name: str) -> Path:
    """Where a known dataset is kept, whether it is there or not."""
    return paths.datasets_dir() / f"{name}.jsonl"


def known_file(
    name: str, source: KnownDataset, say: Callable[[str], None] = lambda line: None
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
        _require_same(data, source, str(file), "Remove it: it is then downloaded again.")
        return file
    say(f"Downloading {name} ({source.size / 1e6:.1f} MB) from {source.url}")
    by_hand = f"Download it elsewhere, and put it here: {file}"
    data = _download(source, by_hand)
    _require_same(data, source, source.url, by_hand)
    _keep(data, file)
    return file


def _download(source: KnownDataset, by_hand: str) -> bytes:
    try:
        with urllib.request.urlopen(source.url, timeout=TIMEOUT_S) as answer:
            data: bytes = answer.read(source.size + 1)
    except (OSError, HTTPException) as error:  # URLError is an OSError
        reason = getattr(error, "reason", None) or error
        raise DatasetError(f"{source.url} cannot be downloaded: {reason}.", hint=by_hand) from error
    return data


def _require_same(data: bytes, source: KnownDataset, where: str, hint: str) -> None:
    """Raise DatasetError for content that is not the dataset's."""
    sha256 = hashlib.sha256(data).hexdigest()
    if sha256 != source.sha256:
        size = f"{len(data):,} bytes" if len(data) <= source.size else "more bytes"
        raise DatasetError(
            f"{where} is not the dataset: {size} with SHA-256 {sha256[:16]}..., but it has "
            f"{source.size:,} with {source.sha256[:16]}....",
            hint=hint,
        )


def _keep(data: bytes, file: Path) -> None:
    """Write a file atomically, so that half of it is never read."""
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
