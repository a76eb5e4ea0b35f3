"""Stands in for docker, mpirun and tritonserver: refuses arguments they would not take, then plays.

The scenario is a file beside it, and so are the log that a server writes, if any, and the record of
every call. It knows the launch contract,
not the code that writes the commands. What only a server needs is imported when one is played.
"""

import json
import os
import re
import signal
import socket
import sys
import time
from concurrent import futures
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
RULES = json.loads((HERE / "launch.json").read_text())
DOCKER_RUN = {
    *("--rm", "--init", "--name", "--pull", "--gpus", "--shm-size", "--ulimit", "--user"),
    *("--security-opt", "--publish", "--mount", "--env"),
}
IMAGE = re.compile(r"nvcr\.io/nvidia/tritonserver:(\d\d\.\d\d)-trtllm-python-py3")
CONTAINER_SERVER = "/opt/tritonserver/bin/tritonserver"
DAEMON = "docker: Error response from daemon: "
ERRORS = {
    "no image": (125, DAEMON + "No such image: {image}"),
    "no gpus": (
        125,
        DAEMON + 'could not select device driver "" with capabilities: [[gpu]].',
    ),
    "no daemon": (
        125,
        "docker: Cannot connect to the Docker daemon at unix:///var/run/docker.sock.",
    ),
    "port taken": (
        125,
        DAEMON + "driver failed programming external connectivity on endpoint x: Bind for "
        "127.0.0.1:1 failed: port is already allocated.",
    ),
    "other tensorrt": (
        1,
        "[TensorRT-LLM][ERROR] IRuntime::deserializeCudaEngine: Error Code 1: Serialization "
        "(Serialization assertion stdVersionRead == kSERIALIZATION_VERSION failed.Version tag does "
        "not match. Note: Current Version: 240, Serialized Engine Version: 239)",
    ),
    "other gpu": (
        1,
        "[TensorRT-LLM][ERROR] IRuntime::deserializeCudaEngine: Error Code 6: The engine plan file "
        "is generated on an incompatible device, expecting compute 9.0 got compute 8.9, please "
        "rebuild.",
    ),
    "no engine": (
        1,
        "E0101 00:00:00.000000 1 model_lifecycle.cc:654] \"failed to load 'generator' version 1: "
        "Internal: unexpected error when creating modelInstanceState: Both encoder and decoder "
        'model paths are empty"',
    ),
    "out of memory": (1, "[TensorRT-LLM][ERROR] CUDA runtime error in cudaMalloc: out of memory"),
    "dies": (1, "[TensorRT-LLM][ERROR] CUDA runtime error: an illegal memory access"),
    "unknown": (1, 'E0101 00:00:00.000000 1 server.cc:1] "something that nobody has seen"'),
}


def refuse(why: str) -> None:
    sys.exit(f"stand-in: {why}")


def split(words: list[str]) -> tuple[dict[str, list[str]], list[str]]:
    """Flags (--key=value) up to the first other word, and the rest."""
    flags: dict[str, list[str]] = {}
    for number, word in enumerate(words):
        if not word.startswith("--"):
            return flags, words[number:]
        key, _, value = word.partition("=")
        flags.setdefault(key, []).append(value)
    return flags, []


def docker(words: list[str]) -> None:
    if words[0] == "rm":
        if words[1] != "--force" or len(words) != 3:
            refuse(f"docker rm {words[1:]}")
        return
    flags, rest = split(words[1:])
    if words[0] != "run" or not flags.keys() <= DOCKER_RUN:
        refuse(f"docker {words[0]} has no {sorted(flags.keys() - DOCKER_RUN)}")
    settings = RULES["containers"]["settings"]
    if flags["--shm-size"] != [settings["--shm-size"]] or flags["--ulimit"] != settings["--ulimit"]:
        refuse("the container's limits are not those of the contract")
    image = IMAGE.fullmatch(rest[0])
    if image is None or image[1] not in RULES["containers"]["tags"] or flags["--gpus"] != ["all"]:
        refuse(f"image {rest[0]}, GPUs {flags['--gpus']}")
    address = next(word for word in rest if word.startswith("--grpc-address="))
    socket_folder = Path(address.partition("unix:")[2]).parent if "unix:" in address else None
    mounts = []
    for mount in flags["--mount"]:
        given = dict(part.partition("=")[::2] for part in mount.split(","))
        if not Path(given["src"]).is_dir() or given["src"] != given["dst"]:
            refuse(f"mount {mount}")
        if ("readonly" in given) == (Path(given["src"]) == socket_folder):
            refuse(f"mount {mount}: all but the socket's folder are read-only")
        mounts.append(Path(given["dst"]))
    ports = [publish.split(":") for publish in flags["--publish"]]
    if any(host != "127.0.0.1" or outside != inside for host, outside, inside in ports):
        refuse(f"ports {ports}")
    variables = dict(env.partition("=")[::2] for env in flags["--env"])
    serve(rest[1:], variables, rest[0], mounts, {port[1] for port in ports})


def serve(
    words: list[str],
    variables: dict[str, str],
    image: str = "",
    mounts: list[Path] | None = None,
    published: set[str] | None = None,
) -> None:
    rules, launcher = RULES["orchestrator"], RULES["mpirun"]["launcher"]
    launched = words[: len(launcher)] == launcher
    orchestrated = rules["environment"].items() <= variables.items()
    binary, *rest = words[len(launcher) :] if launched else words
    flags, more = split(rest)
    if Path(binary).name != "tritonserver" or more:
        refuse(f"{binary} {more}")
    if unknown := flags.keys() - set(RULES["tritonserver_flags"]):
        refuse(f"tritonserver has no {sorted(unknown)}")
    if mounts is not None and binary != CONTAINER_SERVER:
        refuse(f"there is no {binary} in the container")
    if orchestrated and not launched:
        refuse("an orchestrator is started by mpirun")
    if not orchestrated and rules["environment"].keys() & variables.keys():
        refuse("half an orchestrator")
    if not RULES["environment"]["variables"].items() <= variables.items():
        refuse("KV transfer buffers of their default size shrink the pools")
    if orchestrated and not set(rules["arguments"]) <= set(rest):
        refuse(f"an orchestrator needs {rules['arguments']}")
    repository = Path(flags["--model-repository"][0])
    configs = {file.parent.name: parse(file) for file in repository.glob("*/config.pbtxt")}
    for name in ("generator", "prm_engine"):
        values = configs[name].parameters
        sets = values["gpu_device_ids"].string_value.split(";")
        if len(sets) != configs[name].instance_group[0].count:
            refuse("as many sets of GPUs as instances")
        if not orchestrated and sets != ["0"]:
            sys.exit(f"[TensorRT-LLM][ERROR] {RULES['leader']['error']}")
        engine = Path(values["gpt_model_path"].string_value)
        seen = mounts is None or any(engine.is_relative_to(mount) for mount in mounts)
        if not seen or not engine.is_dir():
            fail("no engine", image)
    if (log := HERE / "log").exists():
        print(log.read_text(), flush=True)
    scenario = (HERE / "scenario").read_text()
    if scenario != "serve":
        fail(scenario, image)
    host = flags["--grpc-address"][0]
    port = flags["--grpc-port"][0]
    if host.startswith("unix:"):
        if mounts is not None and Path(host.removeprefix("unix:")).parent not in mounts:
            refuse("the folder of the gRPC socket is not mounted")
    elif published is not None:
        host = "127.0.0.1"
        if port not in published:
            refuse("the gRPC port is not published")
    others = [flags[name][0] for name in ("--http-port", "--metrics-port") if name in flags]
    play(f"{host}:{port}", [int(each) for each in others], configs)


def fail(scenario: str, image: str) -> None:
    status, text = ERRORS[scenario]
    print(text.format(image=image), file=sys.stderr)
    sys.exit(status)


def parse(file: Path) -> Any:
    from google.protobuf import text_format
    from tritonclient.grpc import model_config_pb2

    return text_format.Parse(file.read_text(), model_config_pb2.ModelConfig())


def play(address: str, ports: list[int], configs: dict[str, Any]) -> None:
    import grpc
    from tritonclient.grpc import service_pb2, service_pb2_grpc

    class Triton(service_pb2_grpc.GRPCInferenceServiceServicer):
        def ServerReady(self, request, context):
            return service_pb2.ServerReadyResponse(ready=True)

        def ModelConfig(self, request, context):
            return service_pb2.ModelConfigResponse(config=configs[request.name])

        def ModelInfer(self, request, context):
            if configs[request.model_name].model_transaction_policy.decoupled:
                context.abort(grpc.StatusCode.UNIMPLEMENTED, "decoupled")
            return service_pb2.ModelInferResponse(model_name=request.model_name)

        def ModelStreamInfer(self, requests, context):
            for request in requests:
                response = service_pb2.ModelInferResponse(model_name=request.model_name)
                yield service_pb2.ModelStreamInferResponse(infer_response=response)

    server = grpc.server(futures.ThreadPoolExecutor(4))
    service_pb2_grpc.add_GRPCInferenceServiceServicer_to_server(Triton(), server)
    server.add_insecure_port(address)
    server.start()
    opened = [socket.create_server(("127.0.0.1", port)) for port in ports]  # after gRPC, as Triton
    print(f"listening: {len(opened)} ports and gRPC", flush=True)
    signal.signal(signal.SIGTERM, lambda *_: os._exit(0))
    while True:
        time.sleep(1)


if __name__ == "__main__":
    called, arguments = Path(sys.argv[0]).name, sys.argv[1:]
    with (HERE / "calls.jsonl").open("a") as record:
        record.write(json.dumps([called, *arguments]) + "\n")
    if called == "docker":
        docker(arguments)
    elif called == "mpirun":
        serve(["mpirun", *arguments], dict(os.environ))
    else:
        serve([called, *arguments], dict(os.environ))
