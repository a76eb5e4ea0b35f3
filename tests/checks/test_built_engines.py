"""Checks of engines on disk against the deployment."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.checks.deployments import changed, checkpoint, serious

from tts.build import paths
from tts.build.builder import build_engines
from tts.build.spec import Deployment, load_deployment
from tts.checks import BEFORE_BUILD, lint
from tts.checks.after_build import DEEP
from tts.serving.repository.render import render_repository

Build = Callable[[Deployment], None]


def test_built_engines_are_read_back(build: Build):
    deployment = load_deployment("demo-gpu")
    build(deployment)
    render_repository(deployment)
    assert lint(deployment) == []
    file = paths.engine_dir("demo-gpu", "verifier") / "config.json"
    built = file.read_text()
    file.write_text(built.replace('"use_paged_context_fmha": true', '"use_paged_context_fmha": 0'))
    (finding,) = serious(deployment)
    assert finding.where == str(file)
    assert "use_paged_context_fmha is 0, not true" in finding.what
    file.write_text(built.replace('"1.2.1"', '"1.1.0"'))
    (finding,) = serious(deployment)
    assert "of TensorRT-LLM 1.1.0, not 1.2.1" in finding.what
    file.write_text("no json")
    (finding,) = serious(deployment)
    assert "not JSON" in finding.what


def test_engines_of_the_cpu_target():
    build_engines(load_deployment("demo"), verify=False, say=lambda _: None)
    assert lint(load_deployment("demo")) == []
    (finding,) = serious(changed("demo", {"generator.precision": "int8"}))
    assert finding.what == "precision was fp32 and is now int8"
    assert finding.fix == "Run: tts build-engines demo"


def test_engines_for_another_gpu_or_of_another_checkpoint(build: Build, tmp_path: Path):
    folder = checkpoint(tmp_path)
    deployment = changed("demo-gpu", {"generator.checkpoint": str(folder)})
    build(deployment)
    other = changed("demo-gpu", {"generator.checkpoint": str(folder), "tensorrt.gpu": "h100"})
    found = serious(other)
    assert [f.what for f in found] == ["gpu was rtx4090 and is now h100"] * 2
    file = folder / "generation_config.json"
    file.write_text('{"eos_token_id": [5, 1]}')
    (finding,) = serious(deployment)
    assert "its checkpoint has changed since (generation_config.json)" in finding.what
    (folder / "model.safetensors").unlink()
    assert any("whether the engine is of this checkpoint" in f.what for f in lint(deployment))


def test_a_new_build_is_not_refused_for_the_old_engine(build: Build):
    build(load_deployment("demo-gpu"))
    for finding in lint(changed("demo-gpu", {"tensorrt.gpu": "h100"}), BEFORE_BUILD):
        assert finding.severity == "note"


def test_the_engine_of_a_rank_that_there_is_not(build: Build):
    deployment = load_deployment("demo-gpu")
    build(deployment)
    file = paths.engine_dir("demo-gpu", "generator") / "rank1.engine"
    shutil.copyfile(file.with_name("rank0.engine"), file)
    (finding,) = serious(deployment)
    assert finding.what == "rank1.engine is of a rank that there is not: there are 1"
    assert "tts build-engines demo-gpu" in finding.fix


def test_a_changed_byte_is_found_on_request(build: Build):
    deployment = load_deployment("demo-gpu")
    build(deployment)
    assert lint(deployment, DEEP) == lint(deployment)
    folder = paths.engine_dir("demo-gpu", "verifier")
    (folder / "rank0.engine").write_text("Engine")  # of the same size
    assert serious(deployment) == []
    (finding,) = (f for f in lint(deployment, DEEP) if f.severity == "error")
    assert finding.where == str(folder)
    assert finding.what == "rank0.engine is not the file that was built, by its hash"
    assert finding.fix == "Run: tts build-engines demo-gpu --force"


def test_an_engine_without_hashes_is_current_and_noted(build: Build):
    deployment = load_deployment("demo-gpu")
    build(deployment)
    file = paths.engine_dir("demo-gpu", "verifier") / "manifest.json"
    manifest = json.loads(file.read_text())
    assert manifest["engine_sha256"].keys() == manifest["engine_files"].keys()
    del manifest["engine_sha256"]  # as builds before hashes wrote it
    file.write_text(json.dumps(manifest))
    assert serious(deployment) == []
    more = [finding for finding in lint(deployment, DEEP) if finding not in lint(deployment)]
    (finding,) = more
    assert finding.severity == "note"
    assert "before hashes of its files were kept" in finding.what


def test_an_engine_that_cannot_be_read_is_told(build: Build, monkeypatch: pytest.MonkeyPatch):
    deployment = load_deployment("demo-gpu")
    build(deployment)

    def refuse(file: Path) -> str:
        raise PermissionError(13, "Permission denied", str(file))

    monkeypatch.setattr("tts.build.manifest.file_sha256", refuse)
    found = [finding for finding in lint(deployment, DEEP) if finding.severity == "error"]
    assert len(found) == 2
    assert all("cannot be read" in f.what and "Permission denied" in f.what for f in found)
