"""Checks that files are files and folders are folders."""

from collections.abc import Callable
from pathlib import Path

import pytest
from tests.checks.deployments import changed, checkpoint, serious

from tts.base import paths
from tts.base.errors import CheckpointError
from tts.build.spec import Deployment, load_deployment
from tts.build.tokenizer import Tokenizer

FILES = (
    *("config.json", "generation_config.json", "tokenizer.json", "tokenizer_config.json"),
    *("chat_template.jinja", "model.safetensors"),
)


@pytest.mark.parametrize("name", FILES)
@pytest.mark.parametrize("base", ["demo", "demo-gpu"])
def test_a_file_of_a_checkpoint_that_is_a_folder(tmp_path, base, name):
    folder = checkpoint(tmp_path)
    (folder / name).unlink(missing_ok=True)
    (folder / name).mkdir()
    found = serious(changed(base, {"generator.checkpoint": str(folder)}))
    (finding,) = (finding for finding in found if finding.where == str(folder / name))
    assert finding.what == "is a folder, where a file is expected"


@pytest.mark.parametrize(
    ("name", "what", "fix"),
    [
        ("checkpoint", "is a file, where a folder is expected", "Set verifier.checkpoint to"),
        ("model.gguf", "is a GGUF file, and a Hugging Face checkpoint", "set target to llama.cpp"),
    ],
)
def test_a_checkpoint_that_is_a_file(tmp_path: Path, name, what, fix):
    file = tmp_path / name
    file.write_text("")
    (finding,) = serious(changed("demo", {"verifier.checkpoint": str(file)}))
    assert finding.where == "verifier.checkpoint"
    assert finding.what.startswith(f"{file} {what}")
    assert fix in finding.fix
    if name.endswith(".gguf"):
        with pytest.raises(CheckpointError, match=what):
            Tokenizer(file)


def test_calibration_samples_and_a_model_repository_that_are_files(tmp_path: Path):
    base = "llama-1b-prm-8b-h100-fp8"
    samples = tmp_path / "samples"
    samples.write_text("")
    given = {"kv_precision": "fp8", "calibration": {"dataset": str(samples)}}
    (finding,) = serious(changed(base, {"generator.tensorrt": given}))
    assert finding.where == "generator.tensorrt.calibration.dataset"
    assert finding.what == f"{samples} is a file, where a folder is expected"
    folder = paths.repository_dir(base)
    folder.parent.mkdir(parents=True)
    folder.write_text("")
    (finding,) = serious(load_deployment(base))
    assert finding.where == str(folder)
    assert finding.what == "is a file, where a folder is expected"
    assert finding.fix.endswith(f"tts render {base}")


@pytest.mark.parametrize("name", ["", "config.json", "rank0.engine", "manifest.json"])
def test_a_part_of_an_engine_that_is_of_the_other_kind(
    build: Callable[[Deployment], None], name: str
):
    deployment = load_deployment("demo-gpu")
    build(deployment)
    path = paths.engine_dir("demo-gpu", "verifier") / name
    if name:
        path.unlink()
        path.mkdir()
    else:
        path.rename(path.with_name("elsewhere"))
        path.write_text("")
    whole = [f for f in serious(deployment) if f.where == str(path) and " is expected" in f.what]
    (finding,) = whole
    assert "tts build-engines demo-gpu" in finding.fix
