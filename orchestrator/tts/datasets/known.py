"""Public datasets by name: where each is, what it must be byte by byte, how it is read.

A further one is a further entry. Addresses name a commit, so that what lies there does not change.
None is part of this package: the repositories say on which terms they publish them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from .answers import AnswerKind
from .columns import Columns

_GITHUB = "https://raw.githubusercontent.com"
_GITHUB_LFS = "https://media.githubusercontent.com/media"


@dataclass(frozen=True)
class KnownDataset:
    """A dataset that can be downloaded; the name's suffix is that of its file."""

    title: str
    url: str
    sha256: str
    size: int
    """Size of the file in bytes."""
    problems: int
    columns: Columns
    answers: AnswerKind
    suffix: str = ".jsonl"


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
        "integer",
    ),
}
