"""The manifests say what the deployment says, and fit the schemas of compose and Kubernetes."""

import json
import math
from collections.abc import Callable
from importlib.resources import files
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import assume, given
from hypothesis import strategies as st

from tts.base import paths
from tts.base.errors import ConfigError
from tts.build.spec import Deployment, ServerSpec
from tts.serving.repository.check import check_repository
from tts.serving.repository.manifests import (
    ENGINES,
    MODELS,
    PROBE,
    manifest_ports,
    one_replica,
    render_manifests,
)
from tts.serving.repository.render import render_repository

Make = Callable[..., Deployment]
PAIRS: dict[str, dict[str, Any]] = {
    "one GPU": {},
    "two replicas of two GPUs": {
        "generator": {"tensorrt": {"tensor_parallel": 2, "gpus": [[4, 5], [6, 7]]}},
        "verifier": {"tensorrt": {"gpus": [[5], [7]]}},
        "grpc_port": 9001,
    },
}


@pytest.fixture(params=list(PAIRS))
def deployment(request: pytest.FixtureRequest, tensorrt: Make) -> Deployment:
    return tensorrt("a.pair", **PAIRS[request.param])


def rendered(deployment: Deployment, folder: Path) -> dict[str, list[Any]]:
    return {
        file.name: list(yaml.safe_load_all(file.read_text()))
        for file in render_manifests(deployment, folder)
        if file.suffix == ".yaml"
    }


def test_compose_fits_its_schema(deployment: Deployment, tmp_path: Path):
    pytest.importorskip("check_jsonschema", reason="check-jsonschema carries the compose schema")
    import jsonschema

    schemas = files("check_jsonschema.builtin_schemas") / "vendor"
    schema = json.loads((schemas / "compose-spec.json").read_text(encoding="utf-8"))
    (compose,) = rendered(deployment, tmp_path)["compose.yaml"]
    validator = jsonschema.validators.validator_for(schema)(schema)
    assert [error.message for error in validator.iter_errors(compose)] == []
    compose["services"]["triton"]["imagge"] = "x"  # the schema is strict about what it knows
    assert not validator.is_valid(compose)


def test_kubernetes_manifests_fit_their_schemas(deployment: Deployment, tmp_path: Path):
    validate = pytest.importorskip(
        "kubernetes_validate", reason="kubernetes-validate carries the Kubernetes schemas"
    )
    manifests = rendered(deployment, tmp_path)
    resources = [
        resource
        for name in ("kubernetes.yaml", "gateway.yaml", "autoscaler.yaml")
        for resource in manifests[name]
    ]
    for resource in resources:
        validate.validate(resource, validate.latest_version(), strict=True)
    resources[-1]["spec"]["maxReplica"] = 3
    with pytest.raises(validate.ValidationError):
        validate.validate(resources[-1], validate.latest_version(), strict=True)


def test_compose_serves_what_lies_on_this_machine(tensorrt: Make, tmp_path: Path):
    (compose,) = rendered(tensorrt(**PAIRS["two replicas of two GPUs"]), tmp_path)["compose.yaml"]
    service = compose["services"]["triton"]
    assert service["ports"] == ["127.0.0.1:9001:9001", "127.0.0.1:8000:8000", "127.0.0.1:8002:8002"]
    folders = [volume for volume in service["volumes"] if volume["target"] != PROBE]
    assert [volume["source"] for volume in folders] == [
        str(paths.repository_dir("pair")),
        str(paths.engine_dir("pair", "generator")),
        str(paths.engine_dir("pair", "verifier")),
    ]
    assert all(v["source"] == v["target"] and v["read_only"] for v in folders)
    assert service["shm_size"] == "2g"
    assert service["command"][0] == "mpirun"
    assert service["environment"]["TRTLLM_KVCACHE_TRANSFER_BUFFER_SIZE"] == "1MB"
    assert service["environment"]["TRTLLM_ORCHESTRATOR"] == "1"


def test_a_pod_serves_one_replica_on_gpus_of_its_own(tensorrt: Make, tmp_path: Path):
    deployment = tensorrt(**PAIRS["two replicas of two GPUs"])
    config, _, pods, service, _ = rendered(deployment, tmp_path / "manifests")["kubernetes.yaml"]
    assert pods["spec"]["replicas"] == 2
    pod = pods["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    assert container["resources"]["limits"] == {"nvidia.com/gpu": 2}
    variables = {variable["name"]: variable["value"] for variable in container["env"]}
    assert variables["TRTLLM_KVCACHE_TRANSFER_BUFFER_SIZE"] == "1MB"
    assert pod["securityContext"]["runAsNonRoot"]
    assert container["readinessProbe"]["exec"]["command"] == [
        *("python3", PROBE, "8000"),
        *("generator", "prm"),
    ]
    assert service["spec"]["type"] == "ClusterIP"
    pair = one_replica(deployment)
    assert pair.generator.placement.replicas == ((0, 1),)
    assert pair.verifier.placement.replicas == ((1,),)
    # the volume as the kubelet lays it out is a model repository
    (volume,) = (v["configMap"] for v in pod["volumes"] if "configMap" in v)
    for item in volume["items"]:
        file = tmp_path / "volume" / item["path"]
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(config["data"].pop(item["key"]))
    assert config["data"] == {}
    for empty in (tmp_path / "volume").rglob("empty"):
        empty.unlink()
    findings = check_repository(tmp_path / "volume" / "models", pair)
    # clients know a server by the digest of the whole deployment, of which the pod serves a part
    assert {finding.where.partition(": ")[2] for finding in findings} == {
        "parameters.deployment_digest",
        "parameters.gpt_model_path",
    }


def test_a_pod_asks_for_what_its_engines_need_and_knows_no_path_of_this_machine(
    tensorrt: Make, tmp_path: Path
):
    """An 8B model in 16 bits, twice: over two GPUs and on one; 8 GiB of KV blocks kept by each."""
    kept = {"kv_host_gib": 8}
    deployment = tensorrt(
        generator={"tensorrt": {"tensor_parallel": 2, "gpus": [[0, 1]], **kept}},
        verifier={"tensorrt": {"gpus": [[1]], **kept}},
    )
    manifests = rendered(deployment, tmp_path)
    (config, *_), text = manifests["kubernetes.yaml"], (tmp_path / "kubernetes.yaml").read_text()
    (pods,) = (each for each in manifests["kubernetes.yaml"] if each["kind"] == "Deployment")
    (container,) = pods["spec"]["template"]["spec"]["containers"]
    weights = 2 * 2 * 8_030_261_248 / 2**30
    assert container["resources"]["requests"] == {
        "cpu": "4",
        "memory": f"{math.ceil(weights + 2 + 2 * 8)}Gi",
    }
    here = [line for line in text.splitlines() if str(paths.home()) in line]
    assert all(line.startswith("#") for line in here)
    mounted = {m["mountPath"] for m in container["volumeMounts"]}
    assert {str(MODELS), str(ENGINES)} < mounted
    assert f"--model-repository={MODELS}" in container["args"]
    assert f'string_value: "{ENGINES}/verifier"' in config["data"]["prm_engine.config.pbtxt"]


def test_a_pod_on_one_gpu_serves_the_very_repository(tensorrt: Make, tmp_path: Path):
    deployment = tensorrt()
    folder = render_repository(deployment)
    (config, *_) = rendered(deployment, tmp_path / "manifests")["kubernetes.yaml"]
    for file in folder.rglob("config.pbtxt"):
        text = config["data"][f"{file.parent.name}.config.pbtxt"]
        there = file.read_text().replace(str(folder.parent), str(ENGINES))
        assert text.rstrip("\n") == there.rstrip("\n")


def test_the_autoscalers_watch_the_queues_of_server_and_gateway(tensorrt: Make, tmp_path: Path):
    manifests = rendered(tensorrt(), tmp_path)
    (scaler,), (adapter,) = manifests["autoscaler.yaml"], manifests["prometheus-adapter.yaml"]
    names = [metric["pods"]["metric"]["name"] for metric in scaler["spec"]["metrics"]]
    assert names == ["nv_inference_pending_request_count", "nv_trt_llm_request_metrics"]
    names += [
        metric["pods"]["metric"]["name"]
        for resource in manifests["gateway.yaml"]
        if resource["kind"] == "HorizontalPodAutoscaler"
        for metric in resource["spec"]["metrics"]
    ]
    assert names[-1].startswith("tts_gateway_")
    assert all(name in adapter["rules"]["custom"][0]["seriesQuery"] for name in names)


def test_rendering_twice_gives_the_same(deployment: Deployment, tmp_path: Path):
    one, two = (render_manifests(deployment, tmp_path / name) for name in "ab")
    assert [file.read_text() for file in one] == [file.read_text() for file in two]


@pytest.mark.parametrize(
    ("given", "ports"),
    [
        ({}, (8001, 8000, 8002)),
        ({"grpc_port": 8000}, (8000, 8001, 8002)),
        ({"metrics_port": 8001}, (8002, 8000, 8001)),
        ({"grpc_port": 8002, "http_port": 8001}, (8002, 8001, 8003)),
        ({"http_port": "off", "metrics_port": 9000}, (8001, 8000, 9000)),
    ],
)
def test_a_port_of_the_deployment_moves_a_default_out_of_its_way(
    tensorrt: Make, given: dict[str, Any], ports: tuple[int, ...], tmp_path: Path
):
    deployment = tensorrt(**given)
    assert tuple(manifest_ports(deployment.server).values()) == ports
    manifests = rendered(deployment, tmp_path)
    service = manifests["compose.yaml"][0]["services"]["triton"]
    assert service["ports"] == [f"127.0.0.1:{port}:{port}" for port in ports]
    assert service["healthcheck"]["test"][3] == str(ports[1])
    (pods,) = (each for each in manifests["kubernetes.yaml"] if each["kind"] == "Deployment")
    (container,) = pods["spec"]["template"]["spec"]["containers"]
    assert [port["containerPort"] for port in container["ports"]] == list(ports)
    assert f"--http-port={ports[1]}" in container["args"]


ports = st.one_of(st.just("auto"), st.integers(7998, 8006), st.integers(1, 65535))


@given(ports, st.one_of(st.just("off"), ports), ports)
def test_no_manifest_binds_a_port_twice(grpc: Any, http: Any, metrics: Any):
    given_ports = [port for port in (grpc, http, metrics) if isinstance(port, int)]
    assume(len(set(given_ports)) == len(given_ports))
    spec = ServerSpec(grpc_port=grpc, http_port=http, metrics_port=metrics)
    chosen = manifest_ports(spec)
    assert len(set(chosen.values())) == 3
    assert all(1 <= port <= 65535 for port in chosen.values())
    for name, port in (("grpc", grpc), ("http", http), ("metrics", metrics)):
        assert chosen[name] == port or not isinstance(port, int)


def test_only_target_tensorrt_has_manifests(make: Make, tmp_path: Path):
    with pytest.raises(ConfigError, match="has target openvino"):
        render_manifests(make(), tmp_path)
