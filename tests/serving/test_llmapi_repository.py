"""The repository of target llmapi: what the facts demand, and every corruption is noticed."""

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy
import pytest
import yaml
from tests.checks.faults.of_repository import CORRUPTIONS, corrupted
from tests.serving.facts import unexpected

from tts.build import paths
from tts.build.errors import ServerError
from tts.build.spec import Deployment
from tts.engines import wire
from tts.serving.command.container import Docker
from tts.serving.command.ports import Addresses
from tts.serving.command.server_command import server_command
from tts.serving.command.tritonserver import find_runtime
from tts.serving.repository.check import check_repository
from tts.serving.repository.manifests import render_manifests
from tts.serving.repository.render import parse_config, render_repository

Make = Callable[..., Deployment]
IMAGE = "nvcr.io/nvidia/tritonserver:26.10-trtllm-python-py3"


@pytest.fixture
def llmapi(tensorrt: Make) -> Make:
    """Makes deployments of target llmapi, everything of which lies in the test's folder."""
    return lambda *names, **fields: tensorrt(*names, target="llmapi", **fields)


def parameters(folder: Path, model: str) -> dict[str, str]:
    config = parse_config(folder / model / "config.pbtxt")
    return {key: value.string_value for key, value in config.parameters.items()}


def test_the_models_are_told_what_the_deployment_says(llmapi: Make):
    deployment = llmapi(
        generator={
            "scheduling_policy": "max_utilization",
            "kv_cache": {"tokens": 4100, "reuse": False},
            "tensorrt": {"tensor_parallel": 2, "gpus": [[0, 1], [2, 3]], "kv_host_gib": 1.5},
        },
        verifier={"precision": "fp16", "chunked_context": False, "max_num_tokens": 4096},
    )
    folder = render_repository(deployment)
    assert check_repository(folder, deployment) == []
    assert unexpected(folder) == []
    configs = {path.name: parse_config(path / "config.pbtxt") for path in folder.iterdir()}
    assert {c.backend for c in configs.values()} == {"python", ""}
    assert configs["generator"].model_transaction_policy.decoupled
    assert not configs["prm_engine"].model_transaction_policy.decoupled
    assert configs["generator"].instance_group[0].count == 2
    assert {tensor.name for tensor in configs["generator"].input} == set(wire.INPUTS)
    generator, engine = (parameters(folder, name) for name in ("generator", "prm_engine"))
    assert (generator["gpu_device_ids"], engine["gpu_device_ids"]) == ("0,1;2,3", "0")
    arguments = json.loads(generator["llm_args"])
    assert arguments["tensor_parallel_size"] == 2
    assert arguments["scheduler_config"] == {"capacity_scheduler_policy": "MAX_UTILIZATION"}
    assert arguments["kv_cache_config"] == {
        "max_tokens": 4096,
        "free_gpu_memory_fraction": 0.99,
        "tokens_per_block": 32,
        "enable_block_reuse": False,
        "host_cache_size": 3 * 2**29,
    }
    assert json.loads(engine["llm_args"])["dtype"] == "float16"
    assert json.loads(engine["llm_args"])["cuda_graph_config"] is None
    # the ids of the published verifier: prm_engine keeps their columns, prm_score takes both
    assert (generator["label_token_ids"], engine["label_token_ids"]) == ("", "10,12")
    assert parameters(folder, "prm_score")["label_ids"] == "0,1"


def test_a_checkpoint_of_any_name_survives_the_quoting(llmapi: Make, tmp_path: Path):
    name = tmp_path / 'an "odd" \\ name' / "Llama3.1-8B-PRM-Deepseek-Data"
    folder = render_repository(llmapi(checkpoint=name))
    assert json.loads(parameters(folder, "generator")["llm_args"])["model"] == str(name)


@pytest.mark.slow
def test_every_single_corruption_is_found(
    llmapi: Make, tmp_path: Path, record_property: Callable[[str, object], None]
):
    deployment = llmapi(verifier={"tensorrt": {"gpus": [[4]]}})
    folder = render_repository(deployment)
    missed = [
        what for what, copy in corrupted(folder, tmp_path) if not check_repository(copy, deployment)
    ]
    record_property("mutation score", f"{CORRUPTIONS - len(missed)} of {CORRUPTIONS}")
    assert missed == []


def change_arguments(folder: Path, model: str, change: Callable[[dict[str, Any]], None]) -> None:
    file = folder / model / "config.pbtxt"
    old = parameters(folder, model)["llm_args"]
    arguments = json.loads(old)
    change(arguments)
    quoted = [json.dumps(text).strip('"') for text in (old, json.dumps(arguments))]
    text = file.read_text()
    assert quoted[0] in text
    file.write_text(text.replace(*quoted))


CHANGED: dict[str, tuple[Callable[[dict[str, Any]], Any], list[str]]] = {
    "another value": (
        lambda a: a["kv_cache_config"].update(max_tokens=1),
        ["llm_args: kv_cache_config.max_tokens", "is 1; must be 65536", "the smaller of this"],
    ),
    "an argument that does not exist": (
        lambda a: a.update(max_tokens_in_paged_kv_cache=5),
        ["max_tokens_in_paged_kv_cache is no argument", "LLM refuses it"],
    ),
    "a missing argument": (lambda a: a.pop("model"), ["model is missing"]),
    "another type": (lambda a: a.update(max_seq_len="4096"), ["max_seq_len", "of type int"]),
    "an unknown policy": (
        lambda a: a["scheduler_config"].update(capacity_scheduler_policy="STATIC"),
        ["one of GUARANTEED_NO_EVICT, MAX_UTILIZATION"],
    ),
    "a share of memory that binds": (
        lambda a: a["kv_cache_config"].update(free_gpu_memory_fraction=0.3),
        ["at least 0.9"],
    ),
}


@pytest.mark.parametrize("case", CHANGED)
def test_a_changed_argument_is_named_with_why_it_matters(llmapi: Make, case: str):
    deployment = llmapi()
    folder = render_repository(deployment)
    change, said = CHANGED[case]
    change_arguments(folder, "generator", change)
    text = "\n".join(map(str, check_repository(folder, deployment)))
    assert text.startswith("generator/config.pbtxt: parameters.llm_args")
    assert all(part in text for part in said), text


def test_a_changed_module_of_a_model_is_found(llmapi: Make):
    deployment = llmapi()
    folder = render_repository(deployment)
    carried = sorted(path for path in folder.rglob("*.py"))
    assert len(carried) > 30
    for file in carried:
        before = file.read_text()
        file.write_text(before + "# changed\n")
        (finding,) = check_repository(folder, deployment)
        assert finding.where == str(file.relative_to(folder))
        file.write_text(before)


def test_clients_tell_a_server_with_other_modules(llmapi: Make, monkeypatch: pytest.MonkeyPatch):
    from tts.serving.repository import templates

    deployment = llmapi()
    before = parameters(render_repository(deployment), "generator")["deployment_digest"]
    monkeypatch.setattr(templates, "MODULES", templates.MODULES[:-1])
    after = parameters(render_repository(deployment), "generator")["deployment_digest"]
    assert before != after


def test_the_models_need_numpy_and_what_they_bring_along(llmapi: Make, tmp_path: Path):
    """As in NVIDIA's container: no toolkit, and nothing that it depends on."""
    folder = render_repository(llmapi()) / "generator" / "1"
    backend = tmp_path / "triton_python_backend_utils.py"
    backend.write_text("TRITONSERVER_RESPONSE_COMPLETE_FINAL = 1\n")
    site = tmp_path / "site"
    site.mkdir()
    packages = Path(numpy.__file__).parents[1]
    for needed in packages.glob("numpy*"):
        (site / needed.name).symlink_to(needed)
    code = (
        f"import sys; sys.path[1:1] = [{str(tmp_path)!r}, {str(site)!r}, {str(folder)!r}]\n"
        "import model\n"
        "ours = {n for n in sys.modules if n.startswith('tts.')}\n"
        "import tts.engines.llmapi as package\n"
        "print(ours == {f'tts.{name}' for name in package.MODULES})\n"
        "print(package.__file__)\n"
    )
    done = subprocess.run(
        [sys.executable, "-I", "-S", "-c", code], capture_output=True, text=True, check=False
    )
    assert done.stdout.splitlines() == ["True", str(folder / "tts/engines/llmapi/__init__.py")], (
        done.stderr
    )


def test_the_container_sees_the_repository_and_the_checkpoints(llmapi: Make, tmp_path: Path):
    cache = tmp_path / "cache" / "blobs"
    cache.mkdir(parents=True)
    (cache / "abc").write_text("weights")
    checkpoint = tmp_path / "Llama3.1-8B-PRM-Deepseek-Data"
    checkpoint.mkdir()
    (checkpoint / "model.safetensors").symlink_to(cache / "abc")
    deployment = llmapi(checkpoint=Path("/models/Llama-3.2-1B-Instruct"))
    verifier = deployment.verifier.model_copy(update={"checkpoint": checkpoint})
    deployment = deployment.model_copy(update={"verifier": verifier})
    addresses = Addresses("127.0.0.1", 8001, 0, 8002)
    command = server_command(Docker(IMAGE), deployment, addresses)
    mounted = [word.split("dst=")[1] for word in command.words if "--mount" in word]
    assert mounted == [
        f"{paths.repository_dir('pair')},readonly",
        "/models/Llama-3.2-1B-Instruct,readonly",
        f"{checkpoint},readonly",
        f"{cache},readonly",
    ]
    assert command.words[command.words.index(IMAGE) + 1] == "/opt/tritonserver/bin/tritonserver"


def test_another_image_is_used_where_the_deployment_names_one(
    llmapi: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    docker = tmp_path / "bin" / "docker"
    docker.parent.mkdir()
    docker.write_text("#!/bin/sh\n")
    docker.chmod(0o755)
    monkeypatch.setenv("PATH", str(docker.parent))
    deployment = llmapi()
    assert find_runtime(deployment) == Docker(IMAGE.replace("26.10", "26.07"))
    assert deployment.tensorrt is not None
    other = deployment.tensorrt.model_copy(update={"image": IMAGE})
    assert find_runtime(deployment.model_copy(update={"tensorrt": other})) == Docker(IMAGE)
    docker.unlink()
    with pytest.raises(ServerError, match=r"needs TensorRT-LLM, and .* cannot import it"):
        find_runtime(deployment)


def test_a_pod_has_the_very_repository_and_mounts_the_checkpoints(llmapi: Make, tmp_path: Path):
    deployment = llmapi()
    folder = render_repository(deployment)
    render_manifests(deployment, tmp_path / "manifests")
    text = (tmp_path / "manifests" / "kubernetes.yaml").read_text()
    config, _, pods, *_ = yaml.safe_load_all(text)
    pod = pods["spec"]["template"]["spec"]
    (volume,) = (v["configMap"] for v in pod["volumes"] if "configMap" in v)
    for item in volume["items"]:
        file = tmp_path / "volume" / item["path"]
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(config["data"][item["key"]])
    for empty in (tmp_path / "volume").rglob("empty"):
        empty.unlink()
    assert check_repository(tmp_path / "volume" / "models", deployment) == []
    assert len(text) < 2**20  # a ConfigMap holds no more
    (container,) = pod["containers"]
    mounts = [m["mountPath"] for m in container["volumeMounts"] if m["name"] == "engines"]
    assert mounts == [str(deployment.generator.checkpoint)]  # the same for both: mounted once
    assert container["args"][0] == "/opt/tritonserver/bin/tritonserver"
    assert folder.is_dir()
