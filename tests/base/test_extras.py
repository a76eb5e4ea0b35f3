"""What a hint says about installing an extra."""

import importlib.metadata
import sys

from tts.base.extras import how_to_install


def test_the_packages_of_the_extras_are_named_for_this_python():
    command = how_to_install("cpu", "verify")
    assert command.startswith(f"{sys.executable} -m pip install 'openvino")
    assert command.endswith("'transformers>=4.51'")
    assert "tts-toolkit" not in command, "no index has it"
    assert ";" not in how_to_install("triton"), "markers are for pip's own files"


def test_sources_that_are_not_installed_are_installed_with_the_extra(monkeypatch):
    def absent(name):
        raise importlib.metadata.PackageNotFoundError(name)

    monkeypatch.setattr(importlib.metadata, "requires", absent)
    assert how_to_install("cpu", "verify").endswith("pip install '.[cpu,verify]'")
