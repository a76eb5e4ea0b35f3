"""Target llmapi: checks, and a manifest; nothing is compiled."""

import importlib.metadata
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from tts.build import paths
from tts.build.builder import build_engines, preview_build, require_current
from tts.build.errors import BuildError, CheckpointError, ConfigError
from tts.build.llmapi import target as llmapi
from tts.build.manifest import read_manifest
from tts.build.spec import Deployment, load_deployment

Deploy = Callable[..., Deployment]


@pytest.fixture
def deploy_llmapi(llama: Path) -> Deploy:
    """A deployment of `llama` for target llmapi; keywords override fields of both engines."""

    def make(options: dict[str, Any] | None = None, **fields: Any) -> Deployment:
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
                "target": "llmapi",
                "tensorrt": {"gpu": "h100"} | (options or {}),
                "generator": engine | {"in_flight_requests": 4},
                "verifier": engine | {"in_flight_tokens": 1024},
            }
        )

    return make


def build(deployment: Deployment, **options: Any) -> list[str]:
    said: list[str] = []
    build_engines(deployment, say=said.append, **options)
    return said


def test_building_checks_and_records(deploy_llmapi: Deploy, llama: Path):
    deployment = deploy_llmapi()
    said = build(deployment)
    assert [line for line in said if "TensorRT-LLM is not installed here" in line]
    configs = require_current(deployment)
    assert configs["generator"].output_vocab_size == configs["generator"].vocab_size
    assert configs["verifier"].output_vocab_size == 2
    assert configs["verifier"].label_token_ids == (3, 4)
    manifest = read_manifest(paths.engine_dir("test", "verifier"))
    assert manifest is not None
    assert manifest.settings["target"] == "llmapi"
    assert set(manifest.engine_files) == {"config.json"}
    assert build(deployment)[-2:] == ["generator: unchanged", "verifier: unchanged"]


def test_another_checkpoint_placement_or_precision_is_noticed(
    deploy_llmapi: Deploy, edit_config: Callable[..., Path]
):
    build(deploy_llmapi())
    with pytest.raises(BuildError, match="precision was bf16 and is now fp16"):
        require_current(deploy_llmapi(precision="fp16"))
    with pytest.raises(BuildError, match="tensor_parallel was 1 and is now 2"):
        require_current(deploy_llmapi(tensorrt={"tensor_parallel": 2}))
    edit_config(rms_norm_eps=1e-4)
    with pytest.raises(BuildError, match=r"checkpoint has changed since \(config.json\)"):
        require_current(deploy_llmapi())


def test_limits_of_the_server_need_no_new_record(deploy_llmapi: Deploy):
    build(deploy_llmapi())
    changed = deploy_llmapi(max_batch_size=4, kv_cache={"tokens": 2048, "reuse": False})
    require_current(changed)


def test_a_head_of_its_own_is_refused(deploy_llmapi: Deploy, edit_config: Callable[..., Path]):
    edit_config(architectures=["Qwen2ForRewardModel"])
    with pytest.raises(CheckpointError, match="Qwen2ForRewardModel"):
        build(deploy_llmapi())


def test_a_checkpoint_with_code_of_its_own_is_refused(
    deploy_llmapi: Deploy, edit_config: Callable[..., Path]
):
    edit_config(auto_map={"AutoModel": "code.Model"})
    with pytest.raises(CheckpointError, match="auto_map"):
        build(deploy_llmapi())


REFUSED: list[tuple[dict[str, Any], type[Exception], str]] = [
    ({"tensorrt": {"tensor_parallel": 3}}, ConfigError, "tensor_parallel is 3"),
    ({"max_seq_len": 1024}, ConfigError, "max_position_embeddings 512"),
    ({"kv_cache": {"tokens": 10**9}}, ConfigError, "kv_cache.tokens"),
]


@pytest.mark.parametrize(("fields", "kind", "said"), REFUSED)
def test_what_cannot_be_served_is_refused(
    deploy_llmapi: Deploy, fields: dict[str, Any], kind: type[Exception], said: str
):
    with pytest.raises(kind, match=said):
        build(deploy_llmapi(**fields))
    assert not paths.engine_dir("test", "generator").exists()


def test_there_is_nothing_to_compare_with_transformers(deploy_llmapi: Deploy):
    with pytest.raises(BuildError, match="compiles nothing"):
        build(deploy_llmapi(), verify=True)


@pytest.mark.parametrize(
    ("options", "fields", "said"),
    [
        ({}, {"precision": "fp8"}, "target llmapi allows fp16, bf16"),
        ({}, {"tensorrt": {"gpus": [[0], [1]]}}, "names 2 replicas"),
        ({"gpu": "v100"}, {}, "literal_error"),
        ({"launcher": "mpirun"}, {}, "launcher applies to target tensorrt only"),
        ({}, {"threads": 2}, "threads applies to target openvino only"),
    ],
)
def test_a_file_that_says_what_the_target_lacks_is_refused(
    deploy_llmapi: Deploy, options: dict[str, Any], fields: dict[str, Any], said: str
):
    with pytest.raises(ValidationError, match=said):
        deploy_llmapi(options, **fields)


def test_it_needs_the_gpu_that_it_is_for(deploy_llmapi: Deploy):
    data = deploy_llmapi().model_dump(exclude_none=True)
    del data["tensorrt"]
    with pytest.raises(ValidationError, match="target llmapi needs the block tensorrt"):
        Deployment.model_validate(data)


def installed(monkeypatch: pytest.MonkeyPatch, version: str) -> None:
    real = importlib.metadata.version
    monkeypatch.setattr(
        importlib.metadata,
        "version",
        lambda name: version if name == llmapi.PACKAGE else real(name),
    )


def test_an_installed_version_that_is_too_old_is_refused(
    deploy_llmapi: Deploy, monkeypatch: pytest.MonkeyPatch
):
    installed(monkeypatch, "1.0.0")
    with pytest.raises(BuildError, match=r"TensorRT-LLM 1\.0\.0 is older than 1\.2\.0"):
        build(deploy_llmapi())
    installed(monkeypatch, "1.3.0rc26")
    assert any("1.3.0rc26 is installed here" in line for line in build(deploy_llmapi()))


def test_the_preview_names_what_is_loaded_and_writes_nothing(
    deploy_llmapi: Deploy, home: Path, llama: Path
):
    lines = preview_build(deploy_llmapi())
    assert all(line.startswith("#") for line in lines)
    assert str(llama) in lines[0]
    assert not (home / "built").exists()


def test_the_bundled_demo_is_checked_without_a_gpu():
    build(load_deployment("demo-llmapi"))
    engine = paths.engine_dir("demo-llmapi", "verifier")
    assert json.loads((engine / "config.json").read_text())["target"] == "llmapi"
