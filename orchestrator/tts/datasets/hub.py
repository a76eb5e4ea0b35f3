"""Datasets that are downloaded once: pinned ones by name, any of the Hugging Face hub, or a clone.

The pinned ones lie on GitHub, at a commit, and are checked against their SHA-256 whenever they are
read. None is part of this package: the repositories say on which terms they publish them.

The hub keeps every public dataset as Parquet, too, whatever its own files are: in the branch
`refs/convert/parquet`, as CONFIG/SPLIT/0000.parquet, 0001.parquet and so on
(https://huggingface.co/docs/dataset-viewer/parquet). That branch alone is read. The library knows
the address (HF_ENDPOINT), the token (HF_TOKEN) and whether there is a network (HF_HUB_OFFLINE).

Downloaded files, in a folder named by their commit, are read from then onwards, so a resumed run
solves the same problems. A clone of a repository has its own files, most often as
CONFIG/SPLIT-00000-of-00001.parquet or SPLIT.jsonl.
"""

from __future__ import annotations

import hashlib
import os
import re
import tempfile
import urllib.request
from collections import defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from http.client import HTTPException
from pathlib import Path
from typing import Final

from tts.base import paths
from tts.base.choices import AnswerKind
from tts.base.errors import DatasetError
from tts.base.input_files import is_file
from tts.base.user_paths import is_folder

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
    """The file of a known dataset, downloaded after a line to `say`; raises DatasetError."""
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
    try:
        with urllib.request.urlopen(source.url, timeout=TIMEOUT_S) as answer:
            data = answer.read(source.size + 1)
    except (OSError, HTTPException) as error:  # URLError is an OSError
        reason = getattr(error, "reason", None) or error
        raise DatasetError(f"{source.url} cannot be downloaded: {reason}.", hint=by_hand) from error
    _require_same(data, source, source.url, by_hand)
    temporary = file.with_name(f".{file.name}.{os.getpid()}")  # half a file is never read
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        temporary.write_bytes(data)
        temporary.replace(file)
    except OSError as error:
        raise _unwritable(file, error) from error
    return file


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


def _unwritable(path: Path, error: OSError) -> DatasetError:
    return DatasetError(
        f"{path} cannot be written: {error.strerror or error}.",
        hint="Free some space or fix the permissions, or set TTS_HOME to another folder.",
    )


PREFIX = "hf:"
BRANCH = "refs/convert/parquet"
_NAME = re.compile(
    r"(?P<repo>[\w-][\w.-]*/[\w-][\w.-]*)(:(?P<first>[^:/\\]+))?(:(?P<second>[^:/\\]+))?", re.ASCII
)
_FILE = re.compile(
    r"(?:data/|(?P<config>[^/]+)/)?(?P<split>(?!\d+\.)[^/]+?)(?:/\d+|-(?P<part>\d+)-of-(?P<parts>\d+))?"
    r"\.(?:parquet|jsonl)"
)
"""A file of the hub's own branch, or of a clone, where the config may be left out."""
_OF_A_FILE = (".jsonl", ".json", ".csv", ".tsv", ".parquet", ".txt")


@dataclass(frozen=True)
class HubName:
    """A dataset of the hub, and which part of it; None: see `_choose`."""

    repo: str
    """The repository: OWNER/NAME."""
    config: str | None
    split: str | None

    @classmethod
    def parse(cls, text: str) -> HubName | None:
        """Read OWNER/NAME[:CONFIG][:SPLIT], perhaps after `hf:`; None for any other text.

        One part after the name is the split. Without `hf:` a name that ends like a file is none.
        """
        match = _NAME.fullmatch(text.removeprefix(PREFIX))
        looks_like_a_file = not text.startswith(PREFIX) and text.endswith(_OF_A_FILE)
        if match is None or looks_like_a_file:
            return None
        if match["second"]:
            return cls(match["repo"], match["first"], match["second"])
        return cls(match["repo"], None, match["first"])

    @property
    def folder(self) -> Path:
        """Where its files are kept, in a folder named by their commit."""
        part = "--".join([*self.repo.split("/"), *filter(None, (self.config, self.split))])
        return paths.datasets_dir() / "hub" / part


@dataclass(frozen=True)
class HubFiles:
    """The Parquet files of one split, in order."""

    files: list[Path]
    commit: str


def folder_files(text: str) -> tuple[Path, list[Path]] | None:
    """The folder of FOLDER[:CONFIG][:SPLIT] and its files, or None; DatasetError for no split."""
    for parts in range(3):
        head, *rest = text.rsplit(":", parts)
        if head and is_folder(folder := Path(head).expanduser()):
            matches = (
                file for levels in ("", "*/", "*/*/") for file in folder.glob(f"{levels}*.*")
            )
            there = [file.relative_to(folder).as_posix() for file in matches]
            name = HubName(head, *[None, None, *rest][-2:])
            return folder, [folder / file for file in _choose(name, str(folder), there)[2]]
    return None


def hub_files(name: HubName, say: Callable[[str], None] = lambda line: None) -> HubFiles:
    """The files of a dataset of the hub, downloaded after a line to `say`; raises DatasetError."""
    if (local := _local_files(name)) is None:
        _download(name, say)
        local = _local_files(name)
        assert local is not None
    return local


def _local_files(name: HubName) -> HubFiles | None:
    for folder in sorted(name.folder.glob("[!.]*")):
        if files := sorted(folder.glob("*.parquet")):
            return HubFiles(files, folder.name)
    return None


def _download(name: HubName, say: Callable[[str], None]) -> None:
    from huggingface_hub import HfApi

    # the library reads this variable when it is imported, which may have been before it was set
    api = HfApi(endpoint=os.environ.get("HF_ENDPOINT") or None, library_name="tts-toolkit")
    try:
        listed = api.dataset_info(name.repo, revision=BRANCH, files_metadata=True)
    except Exception as error:  # of whichever HTTP library this version of huggingface_hub has
        raise _refusal(name, error) from error
    sizes = {sibling.rfilename: sibling.size or 0 for sibling in listed.siblings or ()}
    config, split, files = _choose(name, f"The hub's {name.repo}", sizes)
    size = sum(sizes[file] for file in files)
    say(f"Downloading {name.repo}, {config}, {split} ({size / 1e6:.1f} MB) from {api.endpoint}")
    commit = listed.sha or BRANCH.replace("/", "-")
    try:
        name.folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=".", dir=name.folder) as temporary:
            for file in files:
                try:
                    api.hf_hub_download(
                        name.repo, file, repo_type="dataset", revision=commit, local_dir=temporary
                    )
                except Exception as error:
                    raise _refusal(name, error) from error
            Path(temporary, config, split).rename(name.folder / commit)
    except OSError as error:
        if _local_files(name):  # another process was first
            return
        raise _unwritable(name.folder, error) from error


def _choose(name: HubName, where: str, files: Iterable[str]) -> tuple[str, str, list[str]]:
    """The config and split named, else `default` and `test`, else the only ones; their files."""
    splits: defaultdict[str, defaultdict[str, list[str]]]
    splits = defaultdict(lambda: defaultdict(list))
    for file in sorted(files):
        if match := _FILE.fullmatch(file):
            splits[match["config"] or "default"][match["split"]].append(file)
    config = _one_of(where, "config", name.config, "default", list(splits))
    split = _one_of(where, "split", name.split, "test", list(splits[config]))
    _require_all_parts(where, splits[config][split])
    return config, split, splits[config][split]


def _require_all_parts(where: str, files: list[str]) -> None:
    """Raise DatasetError where a numbered part is missing, as of a clone that was cut short."""
    names = [name for file in files if (name := _FILE.fullmatch(file)) and name["parts"]]
    for text in {name["parts"] for name in names}:
        parts = int(text)
        there = {int(name["part"]) for name in names if name["parts"] == text}
        missing = next((part for part in range(parts) if part not in there), None)
        if missing is not None:
            raise DatasetError(
                f"{where} lacks a part of {names[0]['split']}: {missing:05d} of {text}.",
                hint="Complete the folder (git lfs pull, or clone again), or name one file.",
            )


def _one_of(where: str, what: str, name: str | None, usual: str, there: list[str]) -> str:
    listed = ", ".join(there) or "none"
    if name is not None and name not in there:
        raise DatasetError(f"{where} has no {what} {name!r:.100}; there are: {listed}.")
    if name is not None:
        return name
    if usual in there:
        return usual
    if len(there) == 1:
        return there[0]
    raise DatasetError(
        f"{where} has several {what}s: {listed}."
        if there
        else f"{where} has no files that are named by their split, such as "
        "test-00000-of-00001.parquet or test.jsonl.",
        hint="Name it behind the dataset's name: NAME:CONFIG:SPLIT, or NAME:SPLIT."
        if there
        else "Name the folder that has them, or one file.",
    )


def _refusal(name: HubName, error: Exception) -> DatasetError:
    """What a failure of huggingface_hub means, in a sentence."""
    from huggingface_hub import errors

    by_hand = "Save the dataset as a JSONL, CSV or Parquet file, and name that file."
    if isinstance(error, errors.GatedRepoError):
        return DatasetError(
            f"The hub's dataset {name.repo} is gated.",
            hint="Accept its terms on its page, and set HF_TOKEN to a token of that account.",
        )
    if isinstance(error, errors.RevisionNotFoundError):
        return DatasetError(
            f"The hub has not converted the dataset {name.repo} to Parquet ({BRANCH}).",
            hint=by_hand,
        )
    if isinstance(error, errors.RepositoryNotFoundError):
        return DatasetError(
            f"There is no file {name.repo}, and no dataset {name.repo} on the hub that may be read "
            "without a token, or with this one.",
            hint="Check the name. A private dataset needs HF_TOKEN.",
        )
    if isinstance(error, errors.OfflineModeIsEnabled):
        return DatasetError(
            f"The dataset {name.repo} has not been downloaded, and HF_HUB_OFFLINE is set.",
            hint=f"Unset it. {by_hand}",
        )
    why = " ".join(str(error.__cause__ or error).split()).rstrip(".") or type(error).__name__
    return DatasetError(
        f"There is no file {name.repo}, and the hub's dataset of that name cannot be downloaded: "
        f"{why:.300}.",
        hint=f"Check the network and HF_ENDPOINT. {by_hand}",
    )
