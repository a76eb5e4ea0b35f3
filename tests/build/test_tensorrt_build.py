"""Building for TensorRT-LLM with a stand-in toolchain, which plays docker, the container and a GPU.

What it cannot show is that TensorRT-LLM does what the stand-in does.
"""

import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.testing import CliRunner

from tts.build import paths
from tts.build.builder import BuildReport, build_engines, preview_build, require_current
from tts.build.errors import BuildError, CheckpointError, ConfigError, TtsError
from tts.build.spec import Deployment
from tts.build.tensorrt import contract
from tts.build.tensorrt.commands import expected_engine
from tts.build.tensorrt.engine_files import require_as_asked
from tts.build.tensorrt.model_shape import read_model
from tts.cli import app

STANDIN = Path(__file__).parent / "standin"
TOOLS = ("docker", "nvidia-smi", "python3", "trtllm-build")
Deploy = Callable[..., Deployment]
Misbehave = Callable[..., None]


@pytest.fixture
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Put the stand-in toolchain first on PATH; the folder is where it notes what it was asked."""
    state, tools, site = (tmp_path / name for name in ("state", "bin", "site"))
    state.mkdir()
    tools.mkdir()
    for tool in TOOLS:
        script = tools / tool
        script.write_text(f'#!/bin/sh\nexec {sys.executable} {STANDIN}/toolchain.py {tool} "$@"\n')
        script.chmod(0o755)
    shutil.copytree(STANDIN / "site", site, ignore=shutil.ignore_patterns("__pycache__"))
    install_version(site, "1.2.1")
    monkeypatch.setenv("PATH", f"{tools}:/usr/bin:/bin")
    monkeypatch.setenv("TTS_STANDIN_STATE", str(state))
    monkeypatch.setenv("TTS_STANDIN_BIN", str(tools))
    monkeypatch.setenv("TTS_STANDIN_SITE", str(site))
    api = Path(contract.__file__).parent / "contract" / "python_api.json"
    monkeypatch.setenv("TTS_STANDIN_CONTRACT", str(api))
    monkeypatch.delenv(contract.version_variable(), raising=False)
    return state


def install_version(site: Path, version: str) -> None:
    info = site / "tensorrt_llm.dist-info"
    info.mkdir(exist_ok=True)
    (info / "METADATA").write_text(
        f"Metadata-Version: 2.1\nName: tensorrt_llm\nVersion: {version}\n"
    )


@pytest.fixture
def misbehave(state: Path) -> Misbehave:
    """Tell the stand-in what to do wrong from now on; nothing: to behave."""

    def tell(**how: Any) -> None:
        (state / "misbehaviour.json").write_text(json.dumps(how))

    return tell


@pytest.fixture
def deploy(llama: Path, state: Path) -> Deploy:
    """A deployment of `llama` for a GPU; keywords override fields of both engines."""

    def make(gpu: str = "h100", container: str = "26.07", **fields: Any) -> Deployment:
        engine = {
            "checkpoint": llama,
            "precision": "bf16",
            "max_batch_size": 8,
            "max_num_tokens": 256,
            "max_seq_len": 128,
            "kv_cache": {"tokens": 1024},
        } | fields
        return Deployment.model_validate(
            {
                "name": "test",
                "target": "tensorrt",
                "tensorrt": {"gpu": gpu, "container": container},
                "generator": engine | {"in_flight_requests": 4},
                "verifier": engine | {"in_flight_tokens": 1024},
            }
        )

    return make


def build(deployment: Deployment, role: Any = "generator", **options: Any) -> BuildReport:
    (report,) = build_engines(deployment, roles=[role], **({"say": print} | options))
    return report


def calls(state: Path, tool: str) -> list[list[str]]:
    lines = (
        (state / "calls.jsonl").read_text().splitlines() if (state / "calls.jsonl").exists() else []
    )
    return [call[1:] for line in lines if (call := json.loads(line))[0] == tool]


def conversions(state: Path) -> int:
    file = state / "converted"
    return len(file.read_text().splitlines()) if file.exists() else 0


def nothing_half_built(home: Path) -> bool:
    """No engine, no folder on its way to be one; a finished conversion and a log may be kept."""
    root = home / "built" / "test"
    names = {entry.name for entry in root.iterdir()} if root.exists() else set()
    kept = {".build.lock", "generator-build.log", ".generator.work"}
    work = root / ".generator.work"
    half = (work / "engine").exists() or (work.exists() and not (work / "checkpoint.json").exists())
    return names <= kept and not half


def test_builds_both_engines_in_docker(deploy: Deploy, state: Path, home: Path) -> None:
    said: list[str] = []
    generator, verifier = build_engines(deploy(), say=said.append)
    for report in (generator, verifier):
        assert report.status == "built"
        assert {f.name for f in report.folder.iterdir()} == {
            "config.json",
            "rank0.engine",
            "manifest.json",
        }
        assert "not compared with transformers" in str(report.not_verified)
    steps = [call[call.index("--name") + 1] for call in calls(state, "docker")]
    assert steps == [
        f"tts-test-{role}-{step}"
        for role in ("generator", "verifier")
        for step in ("check", "convert", "compile")
    ]
    config = json.loads((verifier.folder / "config.json").read_text())
    assert config["build_config"]["gather_generation_logits"] is True
    assert config["pretrained_config"]["logits_dtype"] == "float32"
    assert any("converting rank 0 of 1" in line for line in said)
    assert any("[TRT-LLM] [I] Total time" in line for line in said)
    log = home / "built" / "test" / "generator-build.log"
    assert log.read_text().startswith("$ docker run --rm")
    assert {e.name for e in log.parent.iterdir()} == {
        ".build.lock", "generator", "verifier", "generator-build.log", "verifier-build.log"
    }  # fmt: skip


def test_unchanged_engines_are_kept_and_served(deploy: Deploy, state: Path) -> None:
    build_engines(deploy(), say=print)
    count = len(calls(state, "docker"))
    assert [r.status for r in build_engines(deploy(), say=print)] == ["unchanged"] * 2
    # what the server decides, and where it runs, asks for no build
    place = {"gpus": [[3]], "kv_host_gib": 4.0}
    other = deploy(container="26.04", kv_cache={"tokens": 4096}, tensorrt=place)
    assert [r.status for r in build_engines(other, say=print)] == ["unchanged"] * 2
    assert len(calls(state, "docker")) == count
    configs = require_current(other)
    assert configs["verifier"].label_token_ids == (3, 4)
    assert configs["verifier"].output_vocab_size == 128
    assert configs["generator"].target == "tensorrt"


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"max_batch_size": 4}, "max_batch_size was 8 and is now 4"),
        ({"precision": "fp16"}, "precision was bf16 and is now fp16"),
        ({"gpu": "h200"}, "gpu was h100 and is now h200"),
        ({"tensorrt": {"tensor_parallel": 2}}, "tensor_parallel was 1 and is now 2"),
        (
            {"kv_cache": {"tokens": 1024, "block_size": 64}},
            "tokens_per_block was 32 and is now 64",
        ),
        ({"precision": "fp8"}, "calibration was None and is now"),
    ],
)
def test_what_is_baked_in_asks_for_a_build(
    deploy: Deploy, fields: dict[str, Any], reason: str
) -> None:
    build(deploy())
    with pytest.raises(BuildError, match=reason):
        require_current(deploy(**fields))


def test_inside_the_container_no_docker_is_started(
    deploy: Deploy, state: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(contract.version_variable(), "26.05")
    (state.parent / "bin" / "docker").unlink()
    place = {"gpus": [[2, 1]], "tensor_parallel": 2}
    assert build(deploy(tensorrt=place)).status == "built"
    assert len(calls(state, "trtllm-build")) == 1
    log = (paths.built_dir("test") / "generator-build.log").read_text()
    assert "$ env CUDA_DEVICE_ORDER=PCI_BUS_ID CUDA_VISIBLE_DEVICES=2,1" in log


@pytest.mark.parametrize("precision", ["fp16", "fp8", "int8", "int4_awq"])
def test_every_precision_on_two_gpus(deploy: Deploy, state: Path, precision: str) -> None:
    place: dict[str, Any] = {"tensor_parallel": 2}
    if precision == "fp8":
        place["kv_precision"] = "fp8"
    report = build(deploy(precision=precision, tensorrt=place), "verifier")
    assert (report.folder / "rank1.engine").is_file()
    config = json.loads((report.folder / "config.json").read_text())["pretrained_config"]
    assert config["mapping"]["tp_size"] == 2
    assert config["logits_dtype"] == "float32"
    online = [call for call in calls(state, "docker") if "--network" not in call]
    assert len(online) == (1 if precision in ("fp8", "int4_awq") else 0)  # downloads its set


def test_calibration_from_a_local_folder(deploy: Deploy, state: Path, tmp_path: Path) -> None:
    folder = tmp_path / "my set, v2"
    place = {"calibration": {"dataset": str(folder), "samples": 8}}
    deployment = deploy(precision="fp8", tensorrt=place)
    with pytest.raises(ConfigError, match="no calibration folder"):
        build(deployment)
    folder.mkdir()
    (folder / "train.jsonl").write_text('{"text": "1 + 1 = 2"}\n')
    assert build(deployment).status == "built"
    assert all("--network" in call for call in calls(state, "docker"))
    (folder / "loader.py").touch()
    with pytest.raises(CheckpointError, match="holds Python code"):
        build(deployment, force=True)


OVERRIDES = [
    ("build_config.plugin_config.use_paged_context_fmha", False, "neither KV reuse nor chunked"),
    ("build_config.plugin_config.context_fmha", False, "neither KV reuse nor chunked"),
    ("build_config.plugin_config.use_fp8_context_fmha", True, "is true, not false"),
    ("build_config.plugin_config.remove_input_padding", False, "batched in flight"),
    ("build_config.plugin_config.gpt_attention_plugin", None, "is null"),
    ("build_config.plugin_config.tokens_per_block", 64, "is 64, not 32"),
    ("build_config.kv_cache_type", "CONTINUOUS", "without paging"),
    ("build_config.max_batch_size", 4, "is 4, not 8"),
    ("build_config.max_num_tokens", 128, "is 128, not 256"),
    ("build_config.max_seq_len", 64, "is 64, not 128"),
    ("build_config.max_input_len", 100, "prompts beyond it"),
    ("build_config.max_beam_width", 2, "is 2, not 1"),
    ("build_config.gather_generation_logits", True, "is true, not false"),
    ("pretrained_config.logits_dtype", "float16", 'is "float16", not "float32"'),
    ("pretrained_config.dtype", "float16", 'is "float16", not "bfloat16"'),
    ("pretrained_config.quantization.quant_algo", "FP8", 'is "FP8", not null'),
    ("pretrained_config.quantization.kv_cache_quant_algo", "INT8", "another size than planned"),
    ("pretrained_config.mapping.tp_size", 2, "is 2, not 1"),
    ("pretrained_config.mapping.world_size", 2, "one process per rank"),
    ("version", "1.1.0", "it is of TensorRT-LLM 1.1.0, not 1.2.1"),
]


@pytest.mark.parametrize(("path", "value", "text"), [OVERRIDES[0], OVERRIDES[12], OVERRIDES[-1]])
def test_a_silent_override_leaves_nothing(
    deploy: Deploy, misbehave: Misbehave, home: Path, state: Path, path: str, value: Any, text: str
) -> None:
    misbehave(override={path: value})
    with pytest.raises(BuildError) as caught:
        build(deploy())
    first, problem = caught.value.message.splitlines()
    assert first == "The engine that trtllm-build made is not what was asked for:"
    assert text in problem
    assert nothing_half_built(home)
    misbehave()
    assert build(deploy()).status == "built"
    assert conversions(state) == 1


def test_every_silent_override_is_refused(deploy: Deploy, tmp_path: Path) -> None:
    deployment = deploy()
    folder = build(deployment).folder
    model = read_model(deployment.generator.checkpoint)
    expected = expected_engine("generator", deployment.generator, model)
    require_as_asked(folder, expected)
    for path, value, text in OVERRIDES:
        config = json.loads((folder / "config.json").read_text())
        *parents, last = path.split(".")
        place = config
        for parent in parents:
            place = place[parent]
        place[last] = value
        changed = tmp_path / "changed"
        shutil.copytree(folder, changed)
        (changed / "config.json").write_text(json.dumps(config))
        with pytest.raises(BuildError) as caught:
            require_as_asked(changed, expected)
        assert text in caught.value.message
        assert path == "version" or path in caught.value.message
        shutil.rmtree(changed)


def test_every_field_that_is_read_back_has_its_test() -> None:
    tested = {path for path, _, _ in OVERRIDES}
    fields = {name: field.path for name, field in contract.engine_fields().items()}
    assert {p for n, p in fields.items() if n not in ("pp_size", "moe_ep_size")} <= tested


@pytest.mark.parametrize("file", ["rank1.engine", "config.json"])
def test_a_missing_file_is_refused(
    deploy: Deploy, misbehave: Misbehave, home: Path, file: str
) -> None:
    misbehave(without=file)
    with pytest.raises(BuildError, match=rf"{file} is missing|wrote no {file}"):
        build(deploy(tensorrt={"tensor_parallel": 2}))
    assert nothing_half_built(home)


FAILURES = [
    ("compile", "RuntimeError: CUDA out of memory. Tried to allocate", "GPU ran out of memory"),
    ("compile", "OSError: [Errno 28] No space left on device", "The disk is full"),
    ("convert", "safetensors: No space left on device (os error 28)", "The disk is full"),
    ("check", "CUDA driver version is insufficient for CUDA runtime", "driver is too old"),
    ("check", "docker: could not select device driver", "cannot use the GPU"),
    ("check", "docker: Cannot connect to the Docker daemon at", "daemon does not answer"),
    ("check", "docker: manifest for nvcr.io/x not found", "image cannot be downloaded"),
    ("check", 'Conflict. The container name "/x" is already in use', "still running"),
    ("compile", "IRuntime: expecting compute 9.0 got compute 8.9", "another than the one"),
    ("convert", "NotImplementedError: Unsupported dataset name", "calibration set cannot"),
    ("compile", "trtllm-build: error: unrecognized arguments: --x", "does not know an argument"),
    ("compile", "AssertionError: something new\nand a last line", "It ended with status 1"),
]


@pytest.mark.parametrize(("step", "line", "sentence"), FAILURES)
def test_a_failed_step_is_one_clear_sentence(
    deploy: Deploy,
    misbehave: Misbehave,
    home: Path,
    state: Path,
    step: str,
    line: str,
    sentence: str,
) -> None:
    misbehave(at=step, say=f"noise before\n{line}\nnoise after")
    with pytest.raises(BuildError) as caught:
        build(deploy())
    log = home / "built" / "test" / "generator-build.log"
    first, telling, where = caught.value.message.splitlines()
    assert first.startswith(f"generator: building the engine failed ({step}). ")
    assert sentence in first
    assert telling.strip() in line
    assert where == f"The whole log: {log}"
    assert "noise after" in log.read_text()
    assert nothing_half_built(home)
    misbehave()
    assert build(deploy()).status == "built"
    assert conversions(state) == 1  # a finished one is not repeated, an unfinished one is


def test_killed_for_memory(deploy: Deploy, misbehave: Misbehave) -> None:
    misbehave(at="compile", say="[TRT-LLM] [I] building", status=137)
    with pytest.raises(BuildError, match=r"It was killed, most likely .* out of memory"):
        build(deploy())


def test_a_conversion_from_something_else_is_not_reused(
    deploy: Deploy, misbehave: Misbehave, state: Path
) -> None:
    misbehave(at="compile", say="error")
    with pytest.raises(BuildError):
        build(deploy())
    misbehave()
    assert build(deploy(precision="fp16")).status == "built"
    assert conversions(state) == 2


def test_what_a_killed_build_left_is_not_trusted(
    deploy: Deploy, misbehave: Misbehave, state: Path, home: Path
) -> None:
    work = home / "built" / "test" / ".generator.work"
    for folder, name in (("checkpoint", "rank0.safetensors"), ("engine", "rank9.engine")):
        (work / folder).mkdir(parents=True)
        (work / folder / name).write_text("half")
    report = build(deploy())
    assert not (report.folder / "rank9.engine").exists()
    assert conversions(state) == 1
    assert not work.exists()


def test_a_failed_rebuild_keeps_the_engine(deploy: Deploy, misbehave: Misbehave) -> None:
    folder = build(deploy()).folder
    before = (folder / "manifest.json").read_text()
    misbehave(at="compile", say="error")
    with pytest.raises(BuildError):
        build(deploy(max_batch_size=4))
    assert (folder / "manifest.json").read_text() == before
    assert build(deploy()).status == "unchanged"


def test_the_timing_cache_is_kept_across_builds(deploy: Deploy, home: Path) -> None:
    build(deploy())
    (cache,) = (home / "built" / ".timings").iterdir()
    assert cache.name == "h100-tensorrt-10.14.1.48.cache"
    assert cache.read_text() == "timings"


@pytest.mark.parametrize(
    ("how", "sentence"),
    [
        ({"capability": "8.0"}, "has compute capability 8.0, but h100 has 9.0"),
        ({"smi": "NVIDIA-SMI has failed: couldn't communicate"}, "finds no usable GPU: NVIDIA-SMI"),
    ],
)
def test_the_machine_is_checked_before_anything_is_run(
    deploy: Deploy, misbehave: Misbehave, state: Path, home: Path, how: Any, sentence: str
) -> None:
    misbehave(**how)
    with pytest.raises(BuildError, match=sentence):
        build_engines(deploy(), say=print)
    assert calls(state, "docker") == []
    assert nothing_half_built(home)


@pytest.mark.parametrize(
    ("how", "sentence"),
    [
        ({"visible": 0}, "0 GPUs can be used in this container, but 1 are needed"),
        ({"inside_capability": "8.9"}, "has compute capability 8.9, not 9.0"),
    ],
)
def test_the_container_is_checked_before_hours_are_spent(
    deploy: Deploy, misbehave: Misbehave, state: Path, how: Any, sentence: str
) -> None:
    misbehave(**how)
    with pytest.raises(BuildError, match=sentence):
        build(deploy())
    assert conversions(state) == 0


def test_another_tensorrt_llm_is_refused(deploy: Deploy, state: Path) -> None:
    install_version(state.parent / "site", "1.3.0")
    with pytest.raises(BuildError, match=r"This container has TensorRT-LLM 1\.3\.0, not 1\.2\.1"):
        build(deploy())
    assert conversions(state) == 0


def test_a_gpu_that_is_not_there(deploy: Deploy) -> None:
    with pytest.raises(BuildError, match=r"uses GPU 7, but nvidia-smi lists 4 \(0, 1, 2, 3\)"):
        build(deploy(tensorrt={"gpus": [[7]]}))


@pytest.mark.parametrize(
    ("tool", "sentence"),
    [("docker", "docker is not installed"), ("nvidia-smi", "no NVIDIA driver on this machine")],
)
def test_a_missing_program(deploy: Deploy, state: Path, tool: str, sentence: str) -> None:
    (state.parent / "bin" / tool).unlink()
    with pytest.raises(BuildError, match=sentence) as caught:
        build(deploy())
    assert caught.value.hint


@pytest.mark.parametrize(
    ("tag", "sentence"),
    [("25.08", "TensorRT-LLM 1.2.1 is in 26.04, 26.05, 26.06, 26.07 only"), ("26.06", "no trtllm")],
)
def test_the_wrong_container(
    deploy: Deploy, state: Path, monkeypatch: pytest.MonkeyPatch, tag: str, sentence: str
) -> None:
    monkeypatch.setenv(contract.version_variable(), tag)
    (state.parent / "bin" / "trtllm-build").unlink()
    with pytest.raises(BuildError, match=sentence):
        build(deploy())


def test_verification_is_refused(deploy: Deploy) -> None:
    with pytest.raises(BuildError, match="not compared with transformers"):
        build(deploy(), verify=True)


def test_not_enough_space(deploy: Deploy, monkeypatch: pytest.MonkeyPatch) -> None:
    usage = shutil.disk_usage("/")._replace(free=1000)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage)
    with pytest.raises(BuildError, match=r"needs about .* while it is built"):
        build(deploy())


@pytest.mark.parametrize("inside", [False, True])
def test_ctrl_c_ends_the_step_and_leaves_nothing(
    deploy: Deploy,
    misbehave: Misbehave,
    state: Path,
    home: Path,
    monkeypatch: pytest.MonkeyPatch,
    inside: bool,
) -> None:
    if inside:
        monkeypatch.setenv(contract.version_variable(), "26.07")
    misbehave(at="compile", hang=True)

    def interrupt() -> None:
        for _ in range(500):
            if (state / "hanging").exists():
                os.kill(os.getpid(), signal.SIGINT)
                return
            time.sleep(0.02)

    thread = threading.Thread(target=interrupt)
    thread.start()
    with pytest.raises(KeyboardInterrupt):
        build(deploy())
    thread.join()
    running = subprocess.run(["ps", "-eo", "args"], capture_output=True, text=True, check=True)
    assert str(home) not in running.stdout  # no command of this build is left
    assert nothing_half_built(home)
    misbehave()
    assert build(deploy()).status == "built"
    assert conversions(state) == 1


def test_dry_run_needs_nothing(
    deploy: Deploy, state: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    data = deploy(max_seq_len=512).model_dump()
    data["generator"]["checkpoint"] = tmp_path / "Llama-3.2-1B-Instruct"
    data["verifier"]["checkpoint"] = tmp_path / "Llama3.1-8B-PRM-Deepseek-Data"
    text = "\n".join(preview_build(Deployment.model_validate(data)))
    assert "# label tokens: '+' is 10, '-' is 12 (published)" in text
    assert text.count("docker run") == 6
    assert "nvcr.io/nvidia/tritonserver:26.07-trtllm-python-py3 trtllm-build" in text
    assert not (state / "calls.jsonl").exists()
    present = "\n".join(preview_build(deploy()))
    assert "# label tokens: '+' is 3, '-' is 4" in present
    data["generator"]["checkpoint"] = tmp_path / "unknown"
    with pytest.raises(TtsError, match="unknown"):
        preview_build(Deployment.model_validate(data))


def test_dry_run_on_the_command_line(
    deploy: Deploy, state: Path, tmp_path: Path, home: Path
) -> None:
    file = tmp_path / "test.yaml"
    data = deploy().model_dump(mode="json", exclude_none=True)
    data["generator"]["step_delimiter"] = "w5"  # its tokenizer knows no white space
    file.write_text(yaml.safe_dump(data))
    done = CliRunner().invoke(app, ["build-engines", str(file), "--dry-run"])
    assert done.exit_code == 0, done.output
    assert done.output.count("docker run") == 6
    assert not home.exists()
    demo = CliRunner().invoke(app, ["build-engines", "demo", "--dry-run"])
    assert "# generator: export" in demo.output


def test_the_printed_commands_build_the_engine(deploy: Deploy, state: Path, tmp_path: Path) -> None:
    """What a user pastes is what a build runs."""
    lines = preview_build(deploy(precision="fp8", tensorrt={"tensor_parallel": 2}))
    script = tmp_path / "pasted.sh"
    script.write_text("set -e\n" + "\n".join(lines))
    subprocess.run(["/bin/sh", str(script)], check=True, capture_output=True)
    engine = paths.built_dir("test") / ".verifier.work" / "engine"
    assert {file.name for file in engine.iterdir()} == {
        "config.json",
        "rank0.engine",
        "rank1.engine",
    }
