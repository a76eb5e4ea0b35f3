"""The names that a program imports from `tts` itself."""

import importlib
import os
import subprocess
import sys
import sysconfig
from importlib.metadata import version
from pathlib import Path

import pytest

import tts

ROOT = Path(__file__).resolve().parents[1]


def run(code, *options, **variables):
    done = subprocess.run(
        [sys.executable, *options, "-c", code],
        env={**os.environ, **variables},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_each_name_is_that_of_its_package():
    assert tts.__version__ == version("tts-toolkit")
    for name in tts.__all__:
        assert name in dir(tts)
        if name != "__version__":
            assert getattr(tts, name) is getattr(importlib.import_module(tts._HOMES[name]), name)


def test_a_name_that_is_none_is_refused_as_by_any_module():
    with pytest.raises(AttributeError, match="module 'tts' has no attribute 'Sesion'"):
        _ = tts.Sesion
    with pytest.raises(ImportError, match="Sesion"):
        importlib.import_module("tts.Sesion")


def test_importing_it_imports_none_of_its_parts():
    code = "import sys, tts; print([name for name in sys.modules if name.startswith('tts.')])"
    assert run(code) == "[]"


def test_parts_are_found_below_each_root():
    for part, root in (
        ("build", "build"),
        ("engines", "engines"),
        ("serving", "triton_repo"),
        ("session", "orchestrator"),
    ):
        file = importlib.import_module(f"tts.{part}").__file__
        assert Path(file).is_relative_to(ROOT / root)


def test_without_the_orchestrator_it_is_a_namespace():
    """As in a container that has the engines' side only."""
    here = [str(ROOT / "build"), str(ROOT / "engines"), sysconfig.get_path("purelib")]
    code = (
        "import tts, tts.base.errors, tts.engines.wire\n"
        "print(tts.__file__, hasattr(tts, 'Session'))"
    )
    # -S: site-packages as a plain folder, so that no .pth file adds the other roots
    assert run(code, "-S", PYTHONPATH=os.pathsep.join(here)) == "None False"


def test_a_fork_has_them_too():
    code = (
        "import os, tts\n"
        "child = os.fork()\n"
        "if child == 0:\n"
        "    from tts import Session\n"
        "    os._exit(0 if tts.Session is Session else 1)\n"
        "print(os.waitpid(child, 0)[1])"
    )
    assert run(code) == "0"
