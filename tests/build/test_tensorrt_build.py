"""Building for TensorRT-LLM with the stand-in toolchain: what is printed, built and refused."""

import json
import shutil
import subprocess

import pytest
from tests.build.stand_in_build import build, calls, conversions, nothing_half_built, option_of

from tts.base import paths
from tts.base.errors import BuildError, CheckpointError, ConfigError, TtsError
from tts.build.builder import build_engines, preview_build, require_current
from tts.build.model_config import shape_of
from tts.build.spec import Deployment
from tts.build.tensorrt import contract
from tts.build.tensorrt.commands import expected_engine
from tts.build.tensorrt.engine_files import require_as_asked


def test_builds_both_engines_in_docker(deploy, state, home):
    said = []
    generator, verifier = build_engines(deploy(), say=said.append)
    for report in (generator, verifier):
        assert report.status == "built"
        assert {f.name for f in report.folder.iterdir()} == {
            "config.json",
            "rank0.engine",
            "manifest.json",
        }
        assert "not compared with transformers" in str(report.not_verified)
    steps = [option_of(call, "--name") for call in calls(state, "docker")]
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


def test_unchanged_engines_are_kept_and_served(deploy, state):
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
        ({"kv_cache": {"tokens": 1024, "block_size": 64}}, "tokens_per_block was 32 and is now 64"),
        ({"precision": "fp8"}, "calibration was None and is now"),
    ],
)
def test_what_is_baked_in_asks_for_a_build(deploy, fields, reason):
    build(deploy())
    with pytest.raises(BuildError, match=reason):
        require_current(deploy(**fields))


def test_inside_the_container_no_docker_is_started(deploy, state, monkeypatch):
    monkeypatch.setenv(contract.version_variable(), "26.05")
    (state.parent / "bin" / "docker").unlink()
    place = {"gpus": [[2, 1]], "tensor_parallel": 2}
    assert build(deploy(tensorrt=place)).status == "built"
    assert [call[0] for call in calls(state, "trtllm-build")] == ["--checkpoint_dir"]
    log = (paths.built_dir("test") / "generator-build.log").read_text()
    assert "$ env CUDA_DEVICE_ORDER=PCI_BUS_ID CUDA_VISIBLE_DEVICES=2,1" in log


@pytest.mark.parametrize("precision", ["fp16", "fp8", "int8", "int4_awq"])
def test_every_precision_on_two_gpus(deploy, state, precision):
    place = {"tensor_parallel": 2}
    if precision == "fp8":
        place["kv_precision"] = "fp8"
    report = build(deploy(precision=precision, tensorrt=place), "verifier")
    assert (report.folder / "rank1.engine").is_file()
    config = json.loads((report.folder / "config.json").read_text())["pretrained_config"]
    assert config["mapping"]["tp_size"] == 2
    assert config["logits_dtype"] == "float32"
    online = [call for call in calls(state, "docker") if option_of(call, "--network") is None]
    assert len(online) == (1 if precision in ("fp8", "int4_awq") else 0)  # downloads its set


def test_experts_on_two_gpus(deploy, edit_config):
    """The stand-in refuses an argument that Qwen's class does not take."""
    edit_config(architectures=["Qwen3MoeForCausalLM"], num_experts=2, num_experts_per_tok=1)
    place = {"tensor_parallel": 2, "expert_parallel": 2}
    config = json.loads((build(deploy(tensorrt=place)).folder / "config.json").read_text())
    mapping = config["pretrained_config"]["mapping"]
    assert (mapping["moe_ep_size"], mapping["moe_tp_size"]) == (2, 1)


def test_calibration_from_a_local_folder(deploy, state, tmp_path):
    folder = tmp_path / "my set, v2"
    place = {"calibration": {"dataset": str(folder), "samples": 8}}
    deployment = deploy(precision="fp8", tensorrt=place)
    with pytest.raises(ConfigError, match="no calibration folder"):
        build(deployment)
    folder.mkdir()
    (folder / "train.jsonl").write_text('{"text": "1 + 1 = 2"}\n')
    assert build(deployment).status == "built"
    assert all(option_of(call, "--network") for call in calls(state, "docker"))
    (folder / "loader.py").touch()
    with pytest.raises(CheckpointError, match="holds Python code"):
        build(deployment, force=True)


def test_a_conversion_from_something_else_is_not_reused(deploy, misbehave, state):
    misbehave(at="compile", say="error")
    with pytest.raises(BuildError):
        build(deploy())
    misbehave()
    assert build(deploy(precision="fp16")).status == "built"
    assert conversions(state) == 2


def test_what_a_killed_build_left_is_not_trusted(deploy, misbehave, state, home):
    work = home / "built" / "test" / ".generator.work"
    for folder, name in (("checkpoint", "rank0.safetensors"), ("engine", "rank9.engine")):
        (work / folder).mkdir(parents=True)
        (work / folder / name).write_text("half")
    report = build(deploy())
    assert not (report.folder / "rank9.engine").exists()
    assert conversions(state) == 1
    assert not work.exists()


def test_a_failed_rebuild_keeps_the_engine(deploy, misbehave):
    folder = build(deploy()).folder
    before = (folder / "manifest.json").read_text()
    misbehave(at="compile", say="error")
    with pytest.raises(BuildError):
        build(deploy(max_batch_size=4))
    assert (folder / "manifest.json").read_text() == before
    assert build(deploy()).status == "unchanged"


def test_the_timing_cache_is_kept_across_builds(deploy, home):
    build(deploy())
    (cache,) = (home / "built" / ".timings").iterdir()
    assert cache.name == "h100-tensorrt-10.14.1.48.cache"
    assert cache.read_text() == "timings"


def test_dry_run_needs_nothing(deploy, state, monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", "/nowhere")
    data = deploy(max_seq_len=512).model_dump()
    data["generator"]["checkpoint"] = tmp_path / "Llama-3.2-1B-Instruct"
    data["verifier"]["checkpoint"] = tmp_path / "Llama3.1-8B-PRM-Deepseek-Data"
    text = "\n".join(preview_build(Deployment.model_validate(data)))
    assert "# label tokens: '+' is 10, '-' is 12 (published)" in text
    assert text.count("docker run") == 6
    assert "nvcr.io/nvidia/tritonserver:26.07-trtllm-python-py3 trtllm-build" in text
    assert not (state / "calls.jsonl").exists()
    data["generator"]["step_delimiter"] = "w5"  # the tokenizer knows no white space
    present = "\n".join(preview_build(deploy()))
    assert "# label tokens: '+' is 3, '-' is 4" in present
    data["generator"]["checkpoint"] = tmp_path / "unknown"
    with pytest.raises(TtsError, match="unknown"):
        preview_build(Deployment.model_validate(data))


def test_the_printed_commands_build_the_engine(deploy, state, tmp_path):
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


def test_a_silent_override_leaves_nothing(deploy, misbehave, home, state):
    misbehave(override={"build_config.max_batch_size": 4})
    with pytest.raises(BuildError) as caught:
        build(deploy())
    first, problem = caught.value.message.splitlines()
    assert first == "The engine that trtllm-build made is not what was asked for:"
    assert "build_config.max_batch_size is 4, not 8" in problem
    assert nothing_half_built(home)
    misbehave()
    assert build(deploy()).status == "built"
    assert conversions(state) == 1


def test_every_silent_override_is_refused(deploy, tmp_path):
    deployment = deploy()
    folder = build(deployment).folder
    model = shape_of(deployment.generator.checkpoint, "tensorrt")
    expected = expected_engine(deployment.generator, model)
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


def test_every_field_that_is_read_back_has_its_test():
    tested = {path for path, _, _ in OVERRIDES}
    fields = {name: field.path for name, field in contract.engine_fields().items()}
    assert {p for n, p in fields.items() if n not in ("pp_size", "moe_ep_size")} <= tested


@pytest.mark.parametrize("file", ["rank1.engine", "config.json"])
def test_a_missing_file_is_refused(deploy, misbehave, home, file):
    misbehave(without=file)
    with pytest.raises(BuildError, match=rf"{file} is missing|wrote no {file}"):
        build(deploy(tensorrt={"tensor_parallel": 2}))
    assert nothing_half_built(home)


@pytest.mark.parametrize("content", ["[" * 100_000, '{"version": ' + "1" * 5000 + "}", "{"])
def test_a_damaged_config_is_refused_in_a_sentence(tmp_path, content):
    (tmp_path / "config.json").write_text(content)
    with pytest.raises(BuildError, match=r"config\.json that is not JSON"):
        require_as_asked(tmp_path, {"world_size": 1})
