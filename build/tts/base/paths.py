"""Where files are, in a checkout and in an installed wheel: the one module that knows both.

| what | checkout | installed wheel |
|---|---|---|
| deployments, checkpoints, templates | engines/, triton_repo/ | <site-packages>/tts/bundled/ |
| built engines, repositories, server files | engines/built/ | <user data>/tts-toolkit/built/ |
| runs | runs/ | <user data>/tts-toolkit/runs/ |
| downloaded datasets | datasets/ | <user data>/tts-toolkit/datasets/ |
| keys and request log of the gateway | gateway/ | <user data>/tts-toolkit/gateway/ |

`TTS_HOME` moves the last four rows anywhere. Files that can be computed again are in the user's
cache folder.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import platformdirs

from .errors import ConfigError
from .input_files import Unreadable, require_path

_PACKAGE = Path(__file__).resolve().parent
# build/tts/base/paths.py in a checkout; tts/build/paths.py in a wheel
_CHECKOUT = _PACKAGE.parents[2]
_IN_CHECKOUT = (_CHECKOUT / "pyproject.toml").is_file() and (_CHECKOUT / "triton_repo").is_dir()
_BUNDLED = _PACKAGE.parent / "bundled"


def deployments_dir() -> Path:
    """Folder of the bundled deployment files (`<name>.yaml`)."""
    return _CHECKOUT / "engines" / "deployments" if _IN_CHECKOUT else _BUNDLED / "deployments"


def is_installed(file: Path) -> bool:
    """Whether a file belongs to an installed wheel, so that users must not change it."""
    return not _IN_CHECKOUT and file.resolve().is_relative_to(_BUNDLED)


def templates_dir() -> Path:
    """Folder of the Triton model-repository templates."""
    return _CHECKOUT / "triton_repo" / "templates" if _IN_CHECKOUT else _BUNDLED / "templates"


def home() -> Path:
    """Folder for everything that the toolkit writes, or `TTS_HOME`; raises ConfigError for none."""
    if override := os.environ.get("TTS_HOME"):
        return _usable(override)
    if _IN_CHECKOUT:
        return _CHECKOUT
    return _of_user(platformdirs.user_data_path)


def _of_user(place: Callable[[str], Path]) -> Path:
    try:
        return place("tts-toolkit")
    except RuntimeError as error:
        raise ConfigError(
            f"This user has no home folder: {error}.",
            hint="Set TTS_HOME to a folder that you may write to.",
        ) from error


def _usable(override: str) -> Path:
    try:
        require_path(override)
        folder = Path(override).expanduser().resolve()
        above = next(place for place in (folder, *folder.parents) if place.exists())
        if not above.is_dir():
            raise Unreadable(f"{above} is not a folder")
        if above != folder and not os.access(above, os.W_OK):
            raise Unreadable(f"it cannot be made, as you may not write to {above}")
    except (OSError, RuntimeError, Unreadable) as error:
        raise ConfigError(
            f"TTS_HOME is {override!r:.300}, where nothing can be kept: {error}.",
            hint="Set it to a folder that you may write to, or unset it.",
        ) from error
    return folder


def built_dir(deployment: str) -> Path:
    """Folder of everything made from one deployment: engines, model repository, server files."""
    in_place = _IN_CHECKOUT and home() == _CHECKOUT
    return (home() / "engines" if in_place else home()) / "built" / deployment


def engine_dir(deployment: str, role: str) -> Path:
    """Folder of one compiled engine; `role` is "generator" or "verifier"."""
    return built_dir(deployment) / role


def repository_dir(deployment: str) -> Path:
    """Folder of the rendered Triton model repository."""
    return built_dir(deployment) / "model_repository"


def server_dir(deployment: str) -> Path:
    """Folder of a running server's files: log, state (addresses, pid), iteration logs."""
    return built_dir(deployment) / "server"


def runs_dir() -> Path:
    """Folder in which runs are kept when the user names none."""
    return home() / "runs"


def datasets_dir() -> Path:
    """Folder in which downloaded datasets are kept."""
    return home() / "datasets"


def gateway_dir() -> Path:
    """Folder of a gateway's files: its keys and its log of requests."""
    return home() / "gateway"


def cache_dir() -> Path:
    """Folder of this user for what can be computed again; raises ConfigError if there is none."""
    return _of_user(platformdirs.user_cache_path)
