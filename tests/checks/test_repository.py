"""Checks of the model repository, as rendered and on disk."""

from tests.checks.deployments import LLAMA, changed, serious

from tts.build.spec import load_deployment
from tts.serving.repository.render import render_repository


def test_the_repository_on_disk_must_be_the_deployments():
    deployment = load_deployment(LLAMA)
    render_repository(deployment)
    assert serious(deployment) == []
    other = changed(LLAMA, {"generator.max_batch_size": 256, "generator.in_flight_requests": 256})
    found = serious(other)
    assert {f.fix for f in found} == {f"Render it again: tts render {LLAMA}"}
    where = "model_repository/generator/config.pbtxt: max_batch_size"
    assert [f.what for f in found if f.where == where] == ["is 512; must be 256"]


def test_files_that_are_folders_and_caches_that_triton_would_take_for_models():
    deployment = load_deployment(LLAMA)
    folder = render_repository(deployment)
    (folder / "prm_score" / "1" / "__pycache__").mkdir()  # as Python leaves it
    assert serious(deployment) == []
    (folder / "__pycache__").mkdir()
    (folder / "generator" / "1").rmdir()
    (folder / "generator" / "1").write_text("")
    (folder / "prm" / "config.pbtxt").unlink()
    (folder / "prm" / "config.pbtxt").mkdir()
    assert {f.where: f.what for f in serious(deployment)} == {
        "model_repository/__pycache__": "does not belong there",
        "model_repository/generator/1": "is a file, not a folder",
        "model_repository/prm/config.pbtxt": "is a folder, not a file",
    }
