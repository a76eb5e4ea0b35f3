"""The check of compiled Python code beside the models, against what Python itself writes."""

import py_compile
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.checks.deployments import LLAMA

from tts.build.spec import load_deployment
from tts.checks.repository import python_caches
from tts.serving.repository.render import render_repository

Mode = py_compile.PycInvalidationMode


@pytest.fixture
def model() -> Path:
    return render_repository(load_deployment(LLAMA)) / "prm_score" / "1" / "model.py"


def found() -> list[str]:
    return [finding.what for finding in python_caches(load_deployment(LLAMA))]


@pytest.mark.parametrize("mode", Mode)
def test_what_python_has_compiled_is_fine_until_the_code_changes(model: Path, mode: Mode):
    py_compile.compile(str(model), invalidation_mode=mode, doraise=True)
    assert found() == []
    model.write_text(model.read_text() + "\n# another\n")
    (what,) = found()
    assert what.startswith("is not compiled from the code beside it: ")


@settings(max_examples=50, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(header=st.binary(max_size=40))
def test_any_other_bytes_are_told(model: Path, header: bytes):
    file = model.parent / "__pycache__" / "model.cpython-311.pyc"
    file.parent.mkdir(exist_ok=True)
    file.write_bytes(header)
    assert len(found()) == 1


def test_code_of_no_model_and_in_no_models_folder(model: Path):
    for folder in (model.parent, model.parents[1]):
        (folder / "__pycache__").mkdir()
        (folder / "__pycache__" / "helper.cpython-312.pyc").write_bytes(b"code")
    assert found() == ["is not compiled from the code beside it: there is no helper.py"]
