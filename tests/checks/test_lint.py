"""Every check: a deployment that breaks it alone, and what is said of it."""

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, assume, given, settings
from tests.build.tensorrt_deployments import deployments
from tests.cli.test_cli import tts

from tts import checks as lint_package
from tts.build import paths
from tts.build.builder import build_engines
from tts.build.checkpoint import stamp_files
from tts.build.errors import TtsError
from tts.build.manifest import MANIFEST_FILE, new_manifest, write_record
from tts.build.spec import Deployment, bundled_deployments, load_deployment
from tts.build.targets import target_module
from tts.build.tensorrt import contract
from tts.build.tensorrt.commands import expected_engine, steps
from tts.build.tensorrt.memory_plan import check_pools
from tts.build.tensorrt.model_shape import read_model
from tts.build.tensorrt.target import workspace
from tts.checks import BEFORE_BUILD, engines, lint
from tts.serving.contract import Finding
from tts.serving.repository.render import render_repository

CHECKPOINTS = paths.deployments_dir().parent / "checkpoints"


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("TTS_HOME", str(tmp_path / "home"))
    return tmp_path / "home"


def changed(base: str, changes: Mapping[str, Any]) -> Deployment:
    """A bundled deployment with fields changed by their paths."""
    data = load_deployment(base).model_dump(mode="json")
    for path, value in changes.items():
        place = data
        *parents, last = path.split(".")
        for parent in parents:
            place[parent] = place[parent] or {}
            place = place[parent]
        place[last] = value
    return Deployment.model_validate(data)


def serious(deployment: Deployment) -> list[Finding]:
    return [finding for finding in lint(deployment) if finding.severity != "note"]


@pytest.mark.parametrize("name", bundled_deployments())
def test_ready_made_deployments_have_nothing_wrong(name: str):
    assert serious(load_deployment(name)) == []


def test_what_is_not_here_is_named():
    notes = [f.what for f in lint(load_deployment("llama-1b-prm-8b-h100-bf16"))]
    assert len(notes) == 7
    assert all(what.startswith("not checked: ") for what in notes)
    for text in ("config.json", "tokenizer.json", "engine is not built", "no model repository"):
        assert any(text in what for what in notes)


LLAMA = "llama-1b-prm-8b-h100-bf16"


@pytest.mark.parametrize(
    ("base", "changes", "texts"),
    [
        (
            "demo",
            {"generator.max_seq_len": 4096},
            ("generator.max_seq_len is 4096", "Set generator.max_seq_len to at most"),
        ),
        (
            LLAMA,
            {"tensorrt.gpu": "a100-80g", "generator.precision": "fp8"},
            ("generator.precision is 'fp8' on a100-80g", "8.9", "Set generator.precision"),
        ),
        (
            LLAMA,
            {"verifier.tensorrt": {"tensor_parallel": 3}},
            ("verifier.tensorrt.tensor_parallel is 3", "32 attention heads", "Choose a"),
        ),
        (
            LLAMA,
            {"verifier.kv_cache.block_size": 8192, "verifier.max_num_tokens": 4096},
            ("verifier computes at most 4096 tokens", "block of 8192", "lower"),
        ),
        (
            LLAMA,
            {"generator.kv_cache.tokens": 4_000_000},
            ("memory plan", "generator.kv_cache.tokens = 4000000", "tts plan"),
        ),
        (LLAMA, {"tensorrt.gpu": "rtx4090"}, ("memory plan", "GPU 0", "larger tensorrt.gpu")),
        (
            LLAMA,
            {"generator.tensorrt": {"kv_host_gib": 16}, "generator.kv_cache.reuse": False},
            ("tensorrt.kv_host_gib is 16", "kv_cache.reuse is false", "reuse to true"),
        ),
        (
            LLAMA,
            {"generator.in_flight_requests": 600},
            ("in_flight_requests: is 600", "max_batch_size is 512", "in_flight_requests to 512"),
        ),
        (
            "demo",
            {"verifier.labels": {"positive": "good", "negative": "-"}},
            ("verifier.labels.positive: 'good' is", "one token", "Set verifier.labels.positive"),
        ),
        (
            "demo-gpu",
            {"verifier.format": "math-shepherd", "verifier.step_tag": "done"},
            ("verifier.step_tag: 'done' is", "Set verifier.step_tag"),
        ),
        (
            "demo",
            {"generator.max_seq_len": 3},
            ("generator.max_seq_len: is 3, but", "go to the chat template alone", "Raise"),
        ),
        (
            "demo",
            {"generator.max_seq_len": 210},
            ("generator.max_seq_len: is 210", "are left for question and steps", "Raise"),
        ),
        (
            "demo",
            {"generator.system_prompt": "Think."},
            ("generator.system_prompt", "roles user and assistant only", "Leave it out"),
        ),
        (
            "demo",
            {
                "verifier.format": "custom",
                "verifier.template": {
                    "head": "1" * 600 + "{question}",
                    "answer": "\n\n",
                    "turn": "{label}\n\n",
                },
            },
            ("verifier.max_seq_len: is 512", "go to the dialogue alone", "Raise"),
        ),
        (
            "demo",
            {"generator.step_delimiter": "\u2603\u2603"},
            ("generator.step_delimiter: is '\u2603\u2603'", "no tokens", "Set generator.step_del"),
        ),
        (
            "demo",  # its tokens "\n" and "\n\n" spell so many as there are Fibonacci numbers
            {"generator.step_delimiter": "\n" * 60},
            ("generator.step_delimiter: is", "in 2,504,730,781,961 ways", "a shorter text"),
        ),
    ],
)
def test_a_broken_deployment_has_one_finding_that_names_field_value_and_remedy(
    base: str, changes: dict[str, Any], texts: tuple[str, ...]
):
    (finding,) = serious(changed(base, changes))
    for text in texts:
        assert text in str(finding)


def checkpoint(tmp_path: Path, name: str = "demo-generator") -> Path:
    """A checkpoint whose files may be changed."""
    folder = tmp_path / name
    folder.mkdir()
    for file in (CHECKPOINTS / name).iterdir():
        (folder / file.name).write_bytes(file.read_bytes())
    return folder


@pytest.mark.parametrize("base", ["demo", "demo-gpu"])
def test_broken_checkpoints(tmp_path: Path, base: str):
    folder = checkpoint(tmp_path)
    deployment = changed(base, {"generator.checkpoint": str(folder)})
    assert serious(deployment) == []
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | {"architectures": ["Other"]}))
    (finding,) = serious(deployment)
    assert finding.where == "generator.checkpoint"
    assert "Other" in finding.what
    (folder / "config.json").write_text(json.dumps(config))
    (folder / "model.safetensors").write_bytes(b"\0" * 10)
    (finding,) = serious(deployment)
    assert "model.safetensors" in finding.what
    (folder / "model.safetensors").unlink()
    assert serious(deployment) == []
    assert any("has no weights" in finding.what for finding in lint(deployment))
    (folder / "tokenizer.json").write_text("{}")
    assert {finding.where for finding in serious(deployment)} == {"generator"}


def test_a_tokenizer_of_another_model_and_no_chat_template(tmp_path: Path):
    folder = checkpoint(tmp_path)
    deployment = changed("demo-gpu", {"generator.checkpoint": str(folder)})
    file = folder / "tokenizer_config.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | {"chat_template": None}))
    (folder / "chat_template.jinja").unlink(missing_ok=True)
    (finding,) = serious(deployment)
    assert "has no chat template" in finding.what
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | {"vocab_size": 5}))
    assert any("vocab_size is 5" in finding.what for finding in serious(deployment))


def test_labels_of_an_unknown_verifier_are_noted():
    deployment = changed(LLAMA, {"verifier.labels": {"positive": "good", "negative": "bad"}})
    assert serious(deployment) == []
    assert any("'good' and 'bad' are not known" in f.what for f in lint(deployment))


def test_calibration_folders(tmp_path: Path):
    calibration = {"kv_precision": "fp8", "calibration": {"dataset": str(tmp_path / "samples")}}
    base = "llama-1b-prm-8b-h100-fp8"
    deployment = changed(base, {"generator.tensorrt": calibration})
    assert any("no folder" in finding.what for finding in lint(deployment))
    (tmp_path / "samples").mkdir()
    (tmp_path / "samples" / "load.py").touch()
    (finding,) = serious(deployment)
    assert "holds Python code (load.py)" in finding.what
    (finding,) = serious(
        changed(base, {"generator.tensorrt": {"calibration": {"dataset": "my/set"}}})
    )
    assert "neither a set that is known" in finding.what


def test_stop_words_that_do_not_fit_the_wire(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(lint_package.texts, "delimiter_stop_words", lambda *_: [(1,), ()])
    (finding,) = serious(load_deployment("demo"))
    assert "a stop word has no tokens" in finding.what


Build = Callable[[Deployment], None]


@pytest.fixture
def build() -> Build:
    """Writes engines as TensorRT-LLM would have left them, as far as they are read back."""

    def make(deployment: Deployment) -> None:
        target = target_module(deployment.target)
        for role, spec in deployment.engines().items():
            folder = paths.engine_dir(deployment.name, role)
            folder.mkdir(parents=True)
            config: dict[str, Any] = {"version": contract.TENSORRT_LLM}
            for name, value in expected_engine(role, spec, read_model(spec.checkpoint)).items():
                place = config
                *parents, last = contract.engine_fields()[name].path.split(".")
                for parent in parents:
                    place = place.setdefault(parent, {})
                place[last] = value
            (folder / "config.json").write_text(json.dumps(config))
            (folder / "rank0.engine").write_text("engine")
            stamps = stamp_files(spec.checkpoint)
            made = target.settings_for(deployment, role)
            manifest = new_manifest(folder, spec.checkpoint, stamps, made, None, "a test")
            write_record(folder, MANIFEST_FILE, manifest)

    return make


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
    (finding,) = serious(changed("demo", {"generator.precision": "bf16"}))
    assert finding.what == "precision was fp32 and is now bf16"
    assert finding.fix == "Run: tts build-engines demo"


def test_engines_for_another_gpu_or_of_another_checkpoint(build: Build, tmp_path: Path):
    folder = checkpoint(tmp_path)
    deployment = changed("demo-gpu", {"generator.checkpoint": str(folder)})
    build(deployment)
    other = changed("demo-gpu", {"generator.checkpoint": str(folder), "tensorrt.gpu": "h100"})
    found = serious(other)
    assert [f.what for f in found] == ["gpu was rtx4090 and is now h100"] * 2
    file = folder / "generation_config.json"
    file.write_text('{"eos_token_id": 1}')
    (finding,) = serious(deployment)
    assert "its checkpoint has changed since (generation_config.json)" in finding.what
    (folder / "model.safetensors").unlink()
    assert any("whether the engine is of this checkpoint" in f.what for f in lint(deployment))


def test_the_repository_on_disk_must_be_the_deployments():
    deployment = load_deployment(LLAMA)
    render_repository(deployment)
    assert serious(deployment) == []
    other = changed(LLAMA, {"generator.max_batch_size": 256, "generator.in_flight_requests": 256})
    found = serious(other)
    assert {f.fix for f in found} == {f"Render it again: tts deploy {LLAMA}"}
    where = "model_repository/generator/config.pbtxt: max_batch_size"
    assert [f.what for f in found if f.where == where] == ["is 512; must be 256"]


def test_a_template_at_fault_is_told_as_such(monkeypatch: pytest.MonkeyPatch):
    real = lint_package.repository.render_models

    def render(deployment: Deployment, values: dict[str, Any], folder: Path) -> None:
        real(deployment, values, folder)
        file = folder / "prm" / "config.pbtxt"
        file.write_text(file.read_text().replace("TYPE_FP32", "TYPE_FP16"))

    monkeypatch.setattr(lint_package.repository, "render_models", render)
    found = serious(load_deployment(LLAMA))
    assert {f.where for f in found} == {
        "as rendered: prm/config.pbtxt: output.score.data_type",
        "as rendered: prm/config.pbtxt: output.label_logits.data_type",
    }
    assert all("templates" in finding.fix for finding in found)


def test_a_command_at_fault_is_told_once():
    deployment = load_deployment(LLAMA)
    model = read_model(deployment.verifier.checkpoint)
    work = workspace(deployment, "verifier")
    command = list(steps(deployment, "verifier", model, work)[-1].command)
    assert list(engines.command_findings(deployment, "verifier", model, command)) == []
    command.remove("--gather_generation_logits")
    (finding,) = engines.command_findings(deployment, "verifier", model, command)
    assert "--gather_generation_logits is missing" in finding.what
    command[command.index("--max_batch_size")] = "--batch"
    problems = [f.what for f in engines.command_findings(deployment, "verifier", model, command)]
    assert problems == [
        "--batch is not a flag of trtllm-build 1.2.1",
        "--max_batch_size is missing",
    ]


def plans(deployment: Deployment) -> bool:
    try:
        check_pools(deployment)
        for role, spec in deployment.engines().items():
            steps(deployment, role, read_model(spec.checkpoint), workspace(deployment, role))
    except TtsError:
        return False
    return True


@settings(
    max_examples=60,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(deployment=deployments())
def test_every_deployment_that_plans_lints_clean(deployment: Deployment):
    assume(plans(deployment))
    assert [f for f in lint(deployment) if f.severity == "error"] == []


def own(tmp_path: Path, **replaced: str) -> Path:
    text = (paths.deployments_dir() / f"{LLAMA}.yaml").read_text()
    for old, new in replaced.items():
        assert f" {old}: " in text
        text = text.replace(f" {old}: ", f" {old}: {new} #", 1)
    file = tmp_path / "own.yaml"
    file.write_text(text)
    return file


def test_the_command_tells_findings_and_counts_them(tmp_path: Path):
    code, out, err = tts("lint", "demo-gpu", home=tmp_path / "home")
    assert (code, err) == (0, "")
    assert out.endswith("\n\n0 errors, 0 warnings, 3 not checked\n")
    file = own(tmp_path, in_flight_requests="600", tokens="4000000")
    code, out, err = tts("lint", file, home=tmp_path / "home")
    assert (code, err) == (1, "")
    first, second, *_ = out.split("\n\n")
    assert first.startswith("error  memory plan: generator.kv_cache.tokens = 4000000")
    assert "\n  why: " in first
    assert "\n  fix: `tts plan " in first
    assert second.startswith("warning  generator.in_flight_requests: is 600")
    assert out.endswith("\n\n1 error, 1 warning, 7 not checked\n")
    assert not (tmp_path / "home").exists()


@pytest.mark.parametrize(
    "command", [("build-engines", "--dry-run"), ("build-engines",), ("deploy",)]
)
def test_building_and_deploying_are_refused_on_errors(tmp_path: Path, command: tuple[str, ...]):
    name, *options = command
    code, out, err = tts(name, own(tmp_path, tokens="4000000"), *options, home=tmp_path / "home")
    assert (code, out) == (2, "")
    assert err.startswith("error  memory plan: generator.kv_cache.tokens = 4000000")
    assert "note  " not in err
    assert "\n\n1 error, 0 warnings, " in err
    assert not (tmp_path / "home").exists()


def test_a_warning_does_not_stop_anything(tmp_path: Path):
    file = own(tmp_path, in_flight_requests="600")
    code, out, err = tts("build-engines", file, "--dry-run", home=tmp_path / "home")
    assert (code, err) == (0, "1 warning; tts lint explains.\n")
    assert "trtllm-build" in out


def test_a_new_build_is_not_refused_for_the_old_engine(build: Build):
    build(load_deployment("demo-gpu"))
    for finding in lint(changed("demo-gpu", {"tensorrt.gpu": "h100"}), BEFORE_BUILD):
        assert finding.severity == "note"
