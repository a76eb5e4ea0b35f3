"""Building for TensorRT-LLM with the stand-in toolchain: what is built, kept and built again."""

import json

import pytest
from tests.build.stand_in_build import build, calls, conversions, option_of

from tts.base import paths
from tts.base.errors import BuildError, CheckpointError, ConfigError
from tts.build.builder import build_engines, require_current
from tts.build.tensorrt import contract


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
        (
            {"kv_cache": {"tokens": 1024, "block_size": 64}},
            "tokens_per_block was 32 and is now 64",
        ),
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
