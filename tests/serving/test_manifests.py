"""The manifests say what the deployment says, and fit the schemas of compose and Kubernetes.

The gateway in them finds its server, is let in by it, and knows it by its digest.
"""

import json
import math
import shutil
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
from tts.build.spec import Deployment, ServerSpec, bundled_deployments, load_deployment
from tts.serving.repository import gateway
from tts.serving.repository.check import check_repository
from tts.serving.repository.digest import deployment_digest
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


def documents(folder: Path, name: str) -> dict[str, Any]:
    """By kind; the server's network policy under its own, the gateway's under another."""
    found = list(yaml.safe_load_all((folder / name).read_text()))
    return {f"{d['kind']} {d['metadata']['name']}": d for d in found}


@pytest.fixture
def folder(tensorrt: Make, tmp_path: Path) -> Path:
    render_manifests(tensorrt("pair", grpc_port=9001), tmp_path / "out")
    return tmp_path / "out"


@pytest.fixture
def pod(folder: Path) -> dict[str, Any]:
    """The gateway's pods in Kubernetes, as their template has them."""
    found = documents(folder, "gateway.yaml")["Deployment tts-pair-gateway"]
    return found["spec"]["template"]


@pytest.fixture
def services(folder: Path) -> dict[str, Any]:
    """The services of docker compose."""
    return yaml.safe_load((folder / "compose.yaml").read_text())["services"]


def test_the_gateway_knows_the_server_by_its_digest(
    make: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """With nothing of the engines but their manifests, at another address."""
    demo = load_deployment("demo")
    text = gateway.deployment_text(demo, "tts-demo", 8001)
    expected = deployment_digest(demo)
    manifests = gateway.engine_manifests(demo)
    monkeypatch.setenv("TTS_HOME", str(tmp_path))
    for role, file in manifests.items():
        place = paths.engine_dir("demo", role) / file.name
        place.parent.mkdir(parents=True)
        shutil.copyfile(file, place)
    (tmp_path / "deployment.yaml").write_text(text)
    loaded = load_deployment(tmp_path / "deployment.yaml")
    assert (loaded.server.host, loaded.server.grpc_port) == ("tts-demo", 8001)
    assert deployment_digest(loaded) == expected


def test_what_scrapes_reads_the_gateways_metrics_without_a_key(
    pod: dict[str, Any], services: dict[str, Any]
):
    (container,) = pod["spec"]["containers"]
    asked = pod["metadata"]["annotations"]["prometheus.io/port"]
    ports = {each["name"]: each["containerPort"] for each in container["ports"]}
    assert ports["metrics"] == int(asked)
    for words in (container["args"], services["gateway"]["command"]):
        assert words[words.index("--metrics") + 1] == f"0.0.0.0:{asked}"
    assert f"127.0.0.1:{asked}:{asked}" in services["gateway"]["ports"]


def test_one_engine_in_both_roles_has_one_checkpoint_in_the_cluster(tensorrt: Make):
    data = tensorrt().model_dump(mode="json", exclude={"verifier"}, exclude_none=True)
    data["verifier"] = {"same_as": "generator", "format": "prompted", "in_flight_tokens": 8192}
    data["verifier"]["prompt"] = "{question} {steps} {step}"
    moved = gateway.in_pod(Deployment.model_validate(data))
    assert {spec.checkpoint for spec in moved.roles().values()} == {
        gateway.CHECKPOINTS / "generator"
    }


def test_a_pod_finds_tokenizers_in_the_cluster(tensorrt: Make, tmp_path: Path):
    deployment = tensorrt()
    render_manifests(deployment, tmp_path)
    manifests = documents(tmp_path, "gateway.yaml")
    text = manifests["ConfigMap tts-pair-gateway"]["data"]["deployment.yaml"]
    found = {role: yaml.safe_load(text)[role]["checkpoint"] for role in ("generator", "verifier")}
    assert found == {role: f"{gateway.CHECKPOINTS}/{role}" for role in found}
    (container,) = manifests["Deployment tts-pair-gateway"]["spec"]["template"]["spec"][
        "containers"
    ]
    mounts = {mount["name"]: mount["mountPath"] for mount in container["volumeMounts"]}
    assert mounts["checkpoints"] == str(gateway.CHECKPOINTS)


@pytest.mark.parametrize("name", bundled_deployments())
def test_a_deployment_comes_back_as_it_was_but_for_the_server(name: str, tmp_path: Path):
    deployment = load_deployment(name)
    file = tmp_path / "deployment.yaml"
    file.write_text(gateway.deployment_text(deployment, "elsewhere", 8001))
    loaded, given = (spec.model_dump() for spec in (load_deployment(file), deployment))
    assert loaded | {"server": None} == given | {"server": None}


def test_every_manifest_calls_the_server_what_the_gateway_calls_it(
    folder: Path, services: dict[str, Any]
):
    server = yaml.safe_load((folder / "deployment.yaml").read_text())["server"]
    assert (server["host"], server["grpc_port"]) == ("tts-pair", 9001)
    assert server["host"] in services["triton"]["networks"]["default"]["aliases"]
    service = documents(folder, "kubernetes.yaml")["Service tts-pair"]
    assert {"name": "grpc", "port": 9001} in [
        {key: port[key] for key in ("name", "port")} for port in service["spec"]["ports"]
    ]
    manifests = documents(folder, "gateway.yaml")
    words = services["gateway"]["command"]
    assert words[words.index("--endpoint") + 1] == "tts-pair:9001"
    config = manifests["ConfigMap tts-pair-gateway"]
    assert yaml.safe_load(config["data"]["deployment.yaml"])["server"] == server


def test_the_gateway_finds_every_pod_of_the_server(folder: Path, pod: dict[str, Any]):
    """By a headless service: its name resolves to the address of each pod that is ready."""
    server = documents(folder, "kubernetes.yaml")
    service, pods = server["Service tts-pair-servers"]["spec"], server["Deployment tts-pair"]
    assert service["clusterIP"] == "None"
    assert service["selector"] == pods["spec"]["template"]["metadata"]["labels"]
    (port,) = service["ports"]
    (container,) = pods["spec"]["template"]["spec"]["containers"]
    open_ports = {each["name"]: each["containerPort"] for each in container["ports"]}
    # a name that is resolved says nothing of ports: the service's must be the pods' own
    assert port["port"] == open_ports[port["targetPort"]] == 9001
    words = pod["spec"]["containers"][0]["args"]
    assert words[words.index("--endpoint") + 1] == "dns:tts-pair-servers:9001"


def test_requests_under_way_have_the_time_that_the_gateway_gives_them(
    pod: dict[str, Any], services: dict[str, Any]
):
    (container,) = pod["spec"]["containers"]
    service = services["gateway"]
    (_, before) = container["lifecycle"]["preStop"]["exec"]["command"]
    for words, seconds in (
        (container["args"], pod["spec"]["terminationGracePeriodSeconds"] - int(before)),
        (service["command"], int(service["stop_grace_period"].removesuffix("s"))),
    ):
        assert int(words[words.index("--grace") + 1]) < seconds


def test_only_the_gateway_reaches_the_servers_grpc(folder: Path, pod: dict[str, Any]):
    found, labels = documents(folder, "gateway.yaml"), pod["metadata"]["labels"]
    servers = documents(folder, "kubernetes.yaml")["Deployment tts-pair"]["spec"]["template"]
    policy = found["NetworkPolicy tts-pair"]["spec"]
    assert policy["podSelector"]["matchLabels"] == servers["metadata"]["labels"]
    let_in = {
        port["port"]: rule.get("from") for rule in policy["ingress"] for port in rule["ports"]
    }
    assert let_in == {
        "grpc": [{"podSelector": {"matchLabels": labels}}],
        "metrics": None,
    }
    policy = found["NetworkPolicy tts-pair-gateway"]["spec"]
    (rule,) = policy["ingress"]
    assert [port["port"] for port in rule["ports"]] == ["http", "metrics"]
    assert labels != servers["metadata"]["labels"]
    assert found["Service tts-pair-gateway"]["spec"]["selector"] == labels


def test_the_gateway_has_no_rights_and_no_secret_in_its_manifest(
    folder: Path, pod: dict[str, Any], services: dict[str, Any]
):
    assert not any(name.startswith("Secret") for name in documents(folder, "gateway.yaml"))
    spec = pod["spec"]
    assert spec["securityContext"]["runAsNonRoot"]
    assert not spec["automountServiceAccountToken"]
    for container in (*spec["initContainers"], *spec["containers"]):
        assert container["securityContext"] == {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        }
    (secret,) = (v["secret"] for v in spec["volumes"] if "secret" in v)
    assert secret["secretName"] == "tts-pair-keys"
    assert services["gateway"]["cap_drop"] == ["ALL"]
    assert services["gateway"]["read_only"]


def test_probes_ask_the_gateways_own_endpoints(pod: dict[str, Any], services: dict[str, Any]):
    (container,) = pod["spec"]["containers"]
    asked = {
        name: container[f"{name}Probe"]["httpGet"]["path"]
        for name in ("startup", "readiness", "liveness")
    }
    assert asked == {
        "startup": gateway.LIVE,
        "readiness": gateway.READY,
        "liveness": gateway.LIVE,
    }
    assert services["gateway"]["healthcheck"]["test"][-1].endswith(gateway.READY)


def test_every_mount_has_its_volume(pod: dict[str, Any]):
    spec = pod["spec"]
    volumes = {volume["name"] for volume in spec["volumes"]}
    mounted = {
        mount["name"]
        for container in (*spec["initContainers"], *spec["containers"])
        for mount in container["volumeMounts"]
    }
    assert mounted == volumes


def test_the_gateway_takes_a_port_that_the_server_has_not(tensorrt: Make, tmp_path: Path):
    render_manifests(tensorrt("pair", grpc_port=8080, http_port=8081), tmp_path)
    services = yaml.safe_load((tmp_path / "compose.yaml").read_text())["services"]
    assert services["gateway"]["ports"] == ["127.0.0.1:8082:8082", "127.0.0.1:9090:9090"]
    command = services["gateway"]["command"]
    assert command[command.index("--port") + 1] == "8082"
