"""Which tritonserver is used, and what is said when there is none."""

import importlib.metadata
import importlib.util
import os
import platform
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from tts.base.errors import ServerError
from tts.serving.command import environment, tritonserver
from tts.serving.command.tritonserver import PYTHON, STUB, find_tritonserver

Only = Callable[[Path], None]
NASTY = "-a 'b\" $HOME `c`\\:;&,ü用\n"


def install(root: Path, *, python: str = PYTHON, backends: tuple[str, ...] = ("python",)) -> Path:
    """A fake tritonserver under `root`, with a Python backend for one version."""
    binary = root / "bin" / "tritonserver"
    binary.parent.mkdir(parents=True)
    binary.write_text("#!/bin/sh\n")
    binary.chmod(0o755)
    for name in backends:
        (root / "backends" / name).mkdir(parents=True)
        (root / "backends" / name / STUB).write_text(f"ELF libpython{python}.so.1.0")
    return binary


@pytest.fixture
def path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Only:
    """Sets PATH to one folder; at first it is an empty one."""

    def only(folder: Path) -> None:
        monkeypatch.setenv("PATH", str(folder))

    only(tmp_path)
    return only


def test_one_on_path_is_preferred(tmp_path: Path, path: Only):
    binary = install(tmp_path)
    (tmp_path / "TRITON_VERSION").write_text("2.59.0\n")
    path(binary.parent)
    found = find_tritonserver()
    assert found.binary == binary
    assert found.backends == tmp_path / "backends"
    assert found.describe() == f"tritonserver 2.59.0 on PATH: {binary}"


def test_one_on_path_for_another_python_is_passed_over(tmp_path: Path, path: Only):
    path(install(tmp_path, python="3.99").parent)
    assert "pytriton" in str(find_tritonserver().binary)


def test_target_tensorrt_needs_its_backend(tmp_path: Path, path: Only):
    with pytest.raises(ServerError, match=r"tensorrtllm backend \(none on PATH\)"):
        find_tritonserver("tensorrt")
    path(install(tmp_path / "plain").parent)
    with pytest.raises(ServerError, match="has no tensorrtllm backend"):
        find_tritonserver("tensorrt")
    binary = install(tmp_path / "ngc", python="3.12", backends=("python", "tensorrtllm"))
    path(binary.parent)
    found = find_tritonserver("tensorrt")
    assert found.binary == binary
    variables = environment.prepare(found, tmp_path / "runtime")
    assert environment.backends(found, tmp_path / "runtime") == tmp_path / "ngc" / "backends"
    # its stub is for another Python, which would not start in a virtual environment of ours
    assert variables["PATH"] == str(binary.parent)


def test_the_bundled_one_is_found_without_importing_its_package(path: Only):
    found = find_tritonserver()
    assert found.binary.is_file()
    assert found.stub is not None
    assert found.stub.is_file()
    assert all(folder.is_dir() for folder in found.libraries)
    assert "2.51.0 in nvidia-pytriton 0.7.0" in found.describe()
    assert "pytriton" not in sys.modules


@pytest.mark.parametrize(
    ("lacking", "message", "hint"),
    [
        (
            (importlib.util, "find_spec", lambda name: None),
            "There is no tritonserver",
            "'openvino>=",
        ),
        ((platform, "system", lambda: "Darwin"), "runs on Linux; this is Darwin", "WSL 2"),
        ((tritonserver, "PYTHON", "3.99"), r"for Python 3\.99 \(it has .*3\.11, 3\.12", "versions"),
        (
            (importlib.metadata, "version", lambda name: "2.4.6" if name == "numpy" else "0.7.0"),
            r"cannot read the arrays of numpy 2\.4\.6",
            f"{sys.executable} -m pip install 'numpy<2'",
        ),
    ],
    ids=["package", "system", "stub", "numpy"],
)
def test_what_the_bundled_one_lacks_is_named_with_the_way_out(
    path: Only,
    monkeypatch: pytest.MonkeyPatch,
    lacking: tuple[object, str, object],
    message: str,
    hint: str,
):
    monkeypatch.setattr(*lacking)
    with pytest.raises(ServerError, match=message) as error:
        find_tritonserver()
    assert hint in (error.value.hint or "")


def test_models_can_import_what_this_process_can(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    (tmp_path / "only-on-sys-path").mkdir()
    (tmp_path / "only-on-sys-path" / "findme.py").write_text("")
    monkeypatch.syspath_prepend(str(tmp_path / "only-on-sys-path"))
    found = find_tritonserver()
    variables = environment.prepare(found, tmp_path / "runtime")
    backends = environment.backends(found, tmp_path / "runtime")
    assert (tmp_path / backends / "python" / STUB).is_file()
    # isolated, as Triton's embedded interpreter is, and in the same folder
    command = ["python3", "-I", "-c", "import findme, tts.build.spec, numpy"]
    subprocess.run(command, env=variables, cwd=tmp_path, check=True)


def test_a_folder_of_any_name_reaches_the_server_by_plain_names(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    folder = tmp_path / NASTY
    (folder / "modules").mkdir(parents=True)
    (folder / "modules" / "findme.py").write_text("")
    monkeypatch.syspath_prepend(str(folder / "modules"))
    found = replace(find_tritonserver(), libraries=(folder / "modules",))
    monkeypatch.delenv("LD_LIBRARY_PATH", raising=False)
    monkeypatch.setenv("PATH", "")  # a shell that is found starts the models
    variables = environment.prepare(found, folder / "runtime")
    assert variables["LD_LIBRARY_PATH"] == "runtime/libraries/0"
    assert variables["PATH"] == f"runtime/python/bin:{os.defpath}"
    command = ["python3", "-I", "-c", "import findme, tts.build.spec"]
    in_c = variables | {"LC_ALL": "C", "PYTHONCOERCECLOCALE": "0"}
    del in_c["LD_LIBRARY_PATH"]
    subprocess.run(command, env=in_c, cwd=folder, check=True)
