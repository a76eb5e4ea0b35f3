"""Target llmapi: checks, and a manifest; nothing is compiled."""

import importlib.metadata

import pytest
from pydantic import ValidationError
from tests.build.conftest import pair

from tts.build import paths
from tts.build.builder import build_engines, preview_build, require_current
from tts.build.errors import BuildError, CheckpointError, ConfigError
from tts.build.llmapi import target as llmapi
from tts.build.manifest import read_manifest


@pytest.fixture
def deploy_llmapi(llama):
    return lambda **fields: pair("llmapi", llama, **fields)


def build(deployment, **options):
    said = []
    build_engines(deployment, say=said.append, **options)
    return said


def test_building_checks_and_records(deploy_llmapi, edit_config):
    deployment = deploy_llmapi()
    said = build(deployment)
    assert [line for line in said if "TensorRT-LLM is not installed here" in line]
    configs = require_current(deployment)
    assert configs["generator"].output_vocab_size == configs["generator"].vocab_size
    assert configs["verifier"].output_vocab_size == 2
    assert configs["verifier"].label_token_ids == (3, 4)
    manifest = read_manifest(paths.engine_dir("test", "verifier"))
    assert manifest.settings["target"] == "llmapi"
    assert set(manifest.engine_files) == {"config.json"}
    assert build(deployment)[-2:] == ["generator: unchanged", "verifier: unchanged"]
    # limits of the server need no new record
    require_current(deploy_llmapi(max_batch_size=4, kv_cache={"tokens": 2048, "reuse": False}))
    for changed, reason in (
        ({"precision": "fp16"}, "precision was bf16 and is now fp16"),
        ({"tensorrt": {"tensor_parallel": 2}}, "tensor_parallel was 1 and is now 2"),
    ):
        with pytest.raises(BuildError, match=reason):
            require_current(deploy_llmapi(**changed))
    edit_config(rms_norm_eps=1e-4)
    with pytest.raises(BuildError, match=r"checkpoint has changed since \(config.json\)"):
        require_current(deployment)


@pytest.mark.parametrize(
    ("fields", "config", "kind", "said"),
    [
        ({"tensorrt": {"tensor_parallel": 3}}, {}, ConfigError, "tensor_parallel is 3"),
        ({"max_seq_len": 1024}, {}, ConfigError, "max_position_embeddings 512"),
        ({"kv_cache": {"tokens": 10**9}}, {}, ConfigError, r"kv_cache\.tokens"),
        ({}, {"architectures": ["Qwen2ForOtherModel"]}, CheckpointError, "Qwen2ForOtherModel"),
        ({"verify": True}, {}, BuildError, "compiles nothing"),
        ({"version": "1.0.0"}, {}, BuildError, r"TensorRT-LLM 1\.0\.0 is older than 1\.2\.0"),
    ],
)
def test_what_cannot_be_served_is_refused(
    deploy_llmapi, edit_config, monkeypatch, fields, config, kind, said
):
    edit_config(**config)
    if version := fields.pop("version", None):
        installed(monkeypatch, version)
    verify = fields.pop("verify", None)
    with pytest.raises(kind, match=said):
        build(deploy_llmapi(**fields), verify=verify)
    assert not paths.engine_dir("test", "generator").exists()


def installed(monkeypatch, version):
    real = importlib.metadata.version
    there = {llmapi.PACKAGE: version}
    monkeypatch.setattr(importlib.metadata, "version", lambda name: there.get(name) or real(name))


def test_an_installed_version_is_named(deploy_llmapi, monkeypatch):
    installed(monkeypatch, "1.3.0rc26")
    assert any("1.3.0rc26 is installed here" in line for line in build(deploy_llmapi()))


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"precision": "fp8"}, "target llmapi allows fp16, bf16"),
        ({"tensorrt": {"gpus": [[0], [1]]}}, "names 2 replicas"),
        ({"gpu": "v100"}, "literal_error"),
        ({"launcher": "mpirun"}, "launcher applies to target tensorrt only"),
        ({"threads": 2}, "threads applies to target openvino only"),
    ],
)
def test_a_file_that_says_what_the_target_lacks_is_refused(deploy_llmapi, fields, said):
    with pytest.raises(ValidationError, match=said):
        deploy_llmapi(**fields)


def test_the_preview_names_what_is_loaded_and_writes_nothing(deploy_llmapi, home, llama):
    lines = preview_build(deploy_llmapi())
    assert all(line.startswith("#") for line in lines)
    assert str(llama) in lines[0]
    assert not (home / "built").exists()
