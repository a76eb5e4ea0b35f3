"""Manifests of target llmapi without Triton: what each trtllm-serve and its client are told."""

import json
from collections.abc import Callable
from importlib.resources import files
from pathlib import Path
from typing import Any

import pytest
import yaml

from tts.build.llmapi.contract import argument_problems
from tts.build.spec import Deployment, load_deployment
from tts.checks.manifests import check_manifests
from tts.serving.repository.manifests import render_manifests
from tts.serving.repository.trtllm_serve import PORTS, arguments

Make = Callable[..., Deployment]


def read(folder: Path, name: str) -> dict[str, Any]:
    data: dict[str, Any] = yaml.safe_load((folder / f"trtllm-serve.{name}.yaml").read_text())
    return data


def test_each_server_gets_the_pool_and_the_limits_of_its_engine(tensorrt: Make, tmp_path: Path):
    deployment = tensorrt("a.pair", target="llmapi", verifier={"tensorrt": {"gpus": [[1]]}})
    render_manifests(deployment, tmp_path)
    for role, spec in deployment.engines().items():
        config = read(tmp_path, role)
        assert config == arguments(spec)
        cache = config["kv_cache_config"]
        assert cache.pop("use_kv_cache_manager_v2") is False
        assert cache["max_tokens"] == spec.kv_cache.blocks * spec.kv_cache.block_size
        assert config["max_batch_size"] == spec.max_batch_size
        assert config["max_seq_len"] == spec.max_seq_len
        lacking = {problem.partition(" ")[0] for problem in argument_problems(config)}
        assert lacking == {  # the server sets these itself; nothing is wrong with the rest
            "model",
            "skip_tokenizer_init",
            "trust_remote_code",
            "gather_generation_logits",
        }


def test_the_servers_are_on_their_gpus_and_load_one_after_the_other(tensorrt: Make, tmp_path: Path):
    deployment = tensorrt("a.pair", target="llmapi", verifier={"tensorrt": {"gpus": [[1]]}})
    render_manifests(deployment, tmp_path)
    services = read(tmp_path, "compose")["services"]
    devices = {role: each["environment"]["CUDA_VISIBLE_DEVICES"] for role, each in services.items()}
    assert devices == {"generator": "0", "verifier": "1"}
    assert services["verifier"]["depends_on"] == {"generator": {"condition": "service_healthy"}}
    for role, service in services.items():
        assert service["ports"] == [f"127.0.0.1:{PORTS[role]}:8000"]
        checkpoint = str(deployment.engines()[role].checkpoint)
        assert service["command"][:2] == ["trtllm-serve", checkpoint]
        sources = {each["source"] for each in service["volumes"]}
        assert {checkpoint, f"./trtllm-serve.{role}.yaml"} <= sources


def test_compose_fits_its_schema(tensorrt: Make, tmp_path: Path):
    pytest.importorskip("check_jsonschema", reason="check-jsonschema carries the compose schema")
    import jsonschema

    schemas = files("check_jsonschema.builtin_schemas") / "vendor"
    schema = json.loads((schemas / "compose-spec.json").read_text(encoding="utf-8"))
    render_manifests(tensorrt("a.pair", target="llmapi"), tmp_path)
    validator = jsonschema.validators.validator_for(schema)(schema)
    assert [error.message for error in validator.iter_errors(read(tmp_path, "compose"))] == []


def test_clients_read_the_same_pair_by_url(tensorrt: Make, tmp_path: Path):
    deployment = tensorrt("a.pair", target="llmapi")
    render_manifests(deployment, tmp_path)
    client = load_deployment(str(tmp_path / "trtllm-serve.deployment.yaml"))
    assert client.target == "openai"
    for role, remote in client.remotes().items():
        spec = deployment.engines()[role]
        assert remote.url == (f"http://127.0.0.1:{PORTS[role]}",)
        assert remote.tokenizer_folder == spec.checkpoint
        assert remote.max_seq_len == spec.max_seq_len
    assert client.generator.system_prompt == deployment.generator.system_prompt
    assert client.verifier.labels == deployment.verifier.labels
    assert client.verifier.format == deployment.verifier.format


def test_lint_names_a_pool_that_was_changed_or_freed(tensorrt: Make, tmp_path: Path):
    deployment = tensorrt("a.pair", target="llmapi")
    render_manifests(deployment, tmp_path)
    assert list(check_manifests(deployment, tmp_path)) == []
    file = tmp_path / "trtllm-serve.verifier.yaml"
    file.write_text(file.read_text().replace("_manager_v2: false", "_manager_v2: auto"))
    (finding,) = check_manifests(deployment, tmp_path)
    assert finding.where.endswith("trtllm-serve.verifier.yaml")
    assert "+ kv_cache_config.use_kv_cache_manager_v2: 'auto'" in finding.what


def test_compiled_engines_have_no_such_servers(tensorrt: Make, tmp_path: Path):
    names = {file.name for file in render_manifests(tensorrt("a.pair"), tmp_path)}
    assert not any("trtllm-serve" in name for name in names)
