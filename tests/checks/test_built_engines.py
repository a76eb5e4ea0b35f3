"""Checks of engines on disk against the deployment."""

import json
import shutil

import pytest
from tests.checks.deployments import changed, checkpoint, serious

from tts.base import paths
from tts.build.builder import build_engines
from tts.build.spec import load_deployment
from tts.checks import BEFORE_BUILD, lint
from tts.checks.after_build import DEEP
from tts.serving.repository.render import render_repository


@pytest.fixture
def built(build):
    """The demo's engines for GPUs, and its deployment."""
    deployment = load_deployment("demo-gpu")
    build(deployment)
    return deployment


VERIFIER = "demo-gpu", "verifier"
PAGED = '"use_paged_context_fmha"'


def test_built_engines_are_read_back(built):
    render_repository(built)
    assert lint(built) == []
    file = paths.engine_dir(*VERIFIER) / "config.json"
    whole = file.read_text()
    for content, what in (
        (whole.replace(f"{PAGED}: true", f"{PAGED}: 0"), "use_paged_context_fmha is 0, not true"),
        (whole.replace('"1.2.1"', '"1.1.0"'), "of TensorRT-LLM 1.1.0, not 1.2.1"),
        ("no json", "not JSON"),
    ):
        file.write_text(content)
        (finding,) = serious(built)
        assert finding.where == str(file)
        assert what in finding.what


def test_engines_of_the_cpu_target():
    build_engines(load_deployment("demo"), verify=False, say=lambda _: None)
    assert lint(load_deployment("demo")) == []
    (finding,) = serious(changed("demo", {"generator.precision": "int8"}))
    assert finding.what == "precision was fp32 and is now int8"
    assert finding.fix == "Run: tts build-engines demo"


def test_engines_for_another_gpu_or_of_another_checkpoint(build, tmp_path):
    folder = checkpoint(tmp_path)
    here = {"generator.checkpoint": str(folder)}
    deployment = changed("demo-gpu", here)
    build(deployment)
    found = serious(changed("demo-gpu", {**here, "tensorrt.gpu": "h100"}))
    assert [f.what for f in found] == ["gpu was rtx4090 and is now h100"] * 2
    (folder / "generation_config.json").write_text('{"eos_token_id": [5, 1]}')
    (finding,) = serious(deployment)
    assert "its checkpoint has changed since (generation_config.json)" in finding.what
    (folder / "model.safetensors").unlink()
    assert any("whether the engine is of this checkpoint" in f.what for f in lint(deployment))


def test_a_new_build_is_not_refused_for_the_old_engine(built):
    for finding in lint(changed("demo-gpu", {"tensorrt.gpu": "h100"}), BEFORE_BUILD):
        assert finding.severity == "note"


def test_the_files_of_an_engine_are_those_that_were_built(built):
    file = paths.engine_dir("demo-gpu", "generator") / "rank0.engine"
    shutil.copyfile(file, file.with_name("rank1.engine"))
    (finding,) = serious(built)
    assert finding.what == "rank1.engine is of a rank that there is not: there are 1"
    assert "tts build-engines demo-gpu" in finding.fix
    file.with_name("rank1.engine").unlink()
    file.write_text("short")
    assert serious(built)
    file.unlink()
    assert serious(built)


def test_a_changed_byte_is_found_on_request(built):
    assert lint(built, DEEP) == lint(built)
    folder = paths.engine_dir(*VERIFIER)
    (folder / "rank0.engine").write_text("Engine")  # of the same size
    assert serious(built) == []
    (finding,) = (f for f in lint(built, DEEP) if f.severity == "error")
    assert finding.where == str(folder)
    assert finding.what == "rank0.engine is not the file that was built, by its hash"
    assert finding.fix == "Run: tts build-engines demo-gpu --force"


def test_an_engine_without_hashes_is_current_and_noted(built):
    file = paths.engine_dir(*VERIFIER) / "manifest.json"
    manifest = json.loads(file.read_text())
    assert manifest["engine_sha256"].keys() == manifest["engine_files"].keys()
    del manifest["engine_sha256"]  # as builds before hashes wrote it
    file.write_text(json.dumps(manifest))
    assert serious(built) == []
    (finding,) = [finding for finding in lint(built, DEEP) if finding not in lint(built)]
    assert finding.severity == "note"
    assert "before hashes of its files were kept" in finding.what


def test_an_engine_that_cannot_be_read_is_told(built, monkeypatch):
    def refuse(file):
        raise PermissionError(13, "Permission denied", str(file))

    monkeypatch.setattr("tts.build.manifest.file_sha256", refuse)
    found = [finding for finding in lint(built, DEEP) if finding.severity == "error"]
    assert len(found) == 2
    assert all("cannot be read" in f.what and "Permission denied" in f.what for f in found)
