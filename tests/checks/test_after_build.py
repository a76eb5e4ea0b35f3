"""Checks of what was built: engines, repository, calibration, tokenizer file, the server's host."""

import json
import shutil
from dataclasses import asdict

import pytest
from tests.checks.deployments import LLAMA, changed, checkpoint, leave_engines, serious

from tts.base import paths
from tts.build.builder import build_engines
from tts.build.inputs import Inputs, verifier_identity
from tts.build.spec import deployment_file, load_deployment
from tts.checks import BEFORE_BUILD, after_build, lint, searches
from tts.checks.after_build import ALL, DEEP, calibration
from tts.serving.repository.model_configs import FILE, write_grammar_tokenizer
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


def test_an_engine_that_cannot_be_read_is_told(built, monkeypatch):
    def refuse(file):
        raise PermissionError(13, "Permission denied", str(file))

    monkeypatch.setattr("tts.build.manifest.file_sha256", refuse)
    found = [finding for finding in lint(built, DEEP) if finding.severity == "error"]
    assert len(found) == 2
    assert all("cannot be read" in f.what and "Permission denied" in f.what for f in found)


def test_commands_to_run_name_the_file_of_a_deployment(tmp_path):
    file = tmp_path / "mine.yaml"
    file.write_text(deployment_file(LLAMA).read_text())
    fixes = [finding.fix for finding in lint(load_deployment(file))]
    assert f"Run: tts render {file}" in fixes
    assert not any(LLAMA in fix for fix in fixes)


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


def test_a_tokenizer_whose_tokens_have_no_known_texts_is_found(tmp_path):
    folder = checkpoint(tmp_path)
    file = folder / "tokenizer.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | {"decoder": {"type": "Fuse"}}))
    deployment = changed("demo", {"generator.checkpoint": str(folder)})
    (finding,) = lint(deployment, [searches.token_texts])
    assert finding.where == "generator.guided_decoding"
    assert "decodes by Fuse" in finding.what
    off = {"generator.checkpoint": str(folder), "generator.guided_decoding": False}
    assert lint(changed("demo", off), [searches.token_texts]) == []
    assert lint(load_deployment("demo"), [searches.token_texts]) == []


def test_the_file_of_the_tokens_is_missed_beside_an_engine(tmp_path, monkeypatch):
    monkeypatch.setenv("TTS_HOME", str(tmp_path))
    deployment = changed("demo-gpu", {"generator.guided_decoding": True})
    assert lint(deployment, [after_build.tokenizer_file]) == []
    leave_engines(deployment)
    (finding,) = lint(deployment, [after_build.tokenizer_file])
    assert finding.what == f"{FILE} is missing"
    write_grammar_tokenizer(deployment)
    assert lint(deployment, [after_build.tokenizer_file]) == []


def found(deployment):
    return [(each.severity, each.what) for each in calibration(Inputs(deployment))]


def measured_with(identity, **changes):
    measured = {"on": "a.jsonl", "problems": 1, "chains": 1, "date": "2026-11-28"}
    section = {"final": [[0, 0], [1, 1]], "measured": {**measured, "verifier": identity}}
    return changed("demo", {"verifier.calibration": section, **changes})


@pytest.fixture
def identity():
    demo = load_deployment("demo")
    build_engines(demo, roles=["verifier"], verify=False, say=lambda _: None)
    return asdict(verifier_identity(demo))


def test_what_is_the_same_says_nothing(identity):
    assert calibration in ALL
    asked_otherwise = asdict(verifier_identity(load_deployment("demo-prompted")))
    assert [name for name in identity if identity[name] == asked_otherwise[name]] == [
        "model",
        "template",
    ]
    for deployment in (load_deployment("demo"), measured_with(identity), measured_with({})):
        assert found(deployment) == []


@pytest.mark.parametrize(
    ("changes", "names"),
    [
        ({"verifier.format": "math-shepherd", "verifier.step_tag": "+"}, ["format", "template"]),
        ({"verifier.labels": ["-", "+"]}, ["template"]),
    ],
)
def test_each_change_is_named(identity, changes, names):
    said = found(measured_with(identity, **changes))
    assert [severity for severity, _ in said] == ["warning"] * len(names)
    for (_, what), name in zip(said, names, strict=True):
        assert f"was measured on 2026-11-28 with another {name}, {identity[name]}" in what
    assert [what for _, what in found(measured_with(identity | {"model": "0"}))] == [
        f"was measured on 2026-11-28 with another model, 0; it is {identity['model']}"
    ]


def test_a_function_is_known_by_its_code(tmp_path):
    file = tmp_path / "prm.py"
    file.write_text("def score(question, steps):\n    return 0.5\n")
    deployment = load_deployment("demo")
    before = verifier_identity(deployment, f"{file}:score")
    assert before.format == "function"
    file.write_text("def score(question, steps):\n    return 0.25\n")
    assert verifier_identity(deployment, f"{file}:score").model != before.model


@pytest.mark.parametrize("host", ["127.0.0.1", "127.0.0.2", "localhost"])
def test_a_loopback_host_is_fine(host: str):
    assert serious(changed("demo", {"server.host": host})) == []


@pytest.mark.parametrize(
    ("host", "what"),
    [
        ("0.0.0.0", "opens the server to every machine that reaches this one"),
        ("192.0.2.7", "which is not an address of this machine"),  # of RFC 5737, nobody's
        ("no-such-host.invalid", "a name that has no IPv4 address here"),
    ],
)
def test_a_host_that_is_no_address_or_open_is_doubted(host: str, what: str):
    (finding,) = serious(changed("demo", {"server.host": host}))
    assert (finding.severity, finding.where) == ("warning", "server.host")
    assert finding.what.startswith(f"is '{host}', ")
    assert what in finding.what
    assert "127.0.0.1" in finding.fix
