"""What one server process runs in: its backend folder, and the interpreter of its Python models.

The Python backend runs an *isolated* embedded interpreter: PYTHONPATH is ignored, and packages are
found from the `python3` that comes first on PATH. So each server gets a tiny virtual environment
of links whose .pth file leads to every folder of this process's sys.path: what is importable here
is importable in the models, installed or not. It is cheap, and made for each start.

The server runs in the folder above and is told its paths relative to that, and each folder outside
by a link: the backend hands paths to a shell unquoted, a colon ends a folder in LD_LIBRARY_PATH,
and the isolated interpreter takes names for ASCII. So a folder on the way may have any name.

Temporary files of the server and its models belong to this environment too, so that the next start
removes those of a killed server.
"""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Iterable
from pathlib import Path

from tts.base import paths
from tts.build.spec import Deployment

from .tritonserver import PYTHON, STUB, TritonServer

_RUNTIME = "runtime"
_TEMPORARY = "tmp"
# The Python backend makes a folder by mkdtemp under this prefix when it is loaded, used or not, and
# removes it only when it is stopped in order. The prefix is a constant of its library, so it can
# be replaced by one of the same length, relative to the server's folder, in which it runs.
_BACKEND_LIBRARY = "libtriton_python.so"
_BUILT_IN_PREFIX = b"/tmp/python_env_"
_OWN_PREFIX = f"{_RUNTIME}/{_TEMPORARY}/env_".encode()


def folder(deployment: Deployment) -> Path:
    """Folder in which the environment of a deployment's server is made."""
    return paths.server_dir(deployment.name) / _RUNTIME


def backends(server: TritonServer, folder: Path) -> Path:
    """The --backend-directory of a server whose environment is made in `folder`.

    It is as the server sees it, which runs in the folder above.
    """
    return server.backends if server.stub is None else Path(folder.name, "backends")


def prepare(server: TritonServer, folder: Path) -> dict[str, str]:
    """Make the backend folder and the models' interpreter under `folder` (replaced if there).

    Returns the variables of the server's environment, all of them.
    """
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    if server.stub is not None:
        _link_backend(server, folder / "backends" / "python")
    temporary = folder / _TEMPORARY
    temporary.mkdir(mode=0o700)
    variables = os.environ | {"TMPDIR": str(temporary)}
    if server.shares_python:  # another version would not find its standard library
        variables.pop("PYTHONHOME", None)
        _link_interpreter(folder / "python")
        variables["PATH"] = variables.get("PATH") or os.defpath  # a shell starts the models
        _prepend(variables, "PATH", [f"{folder.name}/python/bin"])
    if server.libraries:
        links = _links(folder / "libraries", server.libraries)
        paths_there = [f"{folder.name}/libraries/{link}" for link in links]
        _prepend(variables, "LD_LIBRARY_PATH", paths_there)
    return variables


def _link_backend(server: TritonServer, folder: Path) -> None:
    folder.mkdir(parents=True)
    for file in (server.backends / "python").iterdir():
        if file.name == _BACKEND_LIBRARY and not os.statvfs(folder).f_flag & os.ST_NOEXEC:
            library = file.read_bytes().replace(_BUILT_IN_PREFIX, _OWN_PREFIX)
            (folder / file.name).write_bytes(library)
        elif file.is_file():
            (folder / file.name).symlink_to(file)
    assert server.stub is not None
    (folder / STUB).symlink_to(server.stub)


def _link_interpreter(folder: Path) -> None:
    binaries, packages = folder / "bin", folder / "lib" / f"python{PYTHON}" / "site-packages"
    binaries.mkdir(parents=True)
    real = Path(sys.executable).resolve()
    (folder / "base").symlink_to(real.parents[1])
    for name in ("python", "python3"):
        (binaries / name).symlink_to(real)
    (folder / "pyvenv.cfg").write_text(
        f"home = {folder.parent.name}/python/base/bin\ninclude-system-site-packages = false\n"
    )
    links = _links(packages, [Path(entry) for entry in sys.path if Path(entry or ".").is_dir()])
    (packages / "importable-here.pth").write_text("\n".join(links) + "\n", encoding="ascii")


def _links(folder: Path, targets: Iterable[Path]) -> list[str]:
    """Names of links to the targets, made in a new folder."""
    folder.mkdir(parents=True)
    names = []
    for number, target in enumerate(targets):
        (folder / str(number)).symlink_to(target.resolve())
        names.append(str(number))
    return names


def _prepend(variables: dict[str, str], name: str, folders: list[str]) -> None:
    variables[name] = os.pathsep.join([*folders, *filter(None, [variables.get(name)])])
