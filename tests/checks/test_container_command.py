"""The docker command that runs a server, against what deployment and facts require.

It is worked out here a second time: the two were written independently.
"""

import os

import pytest
from tests.bundled import BUNDLED, TENSORRT
from tests.serving.facts import LAUNCH

from tts.base import paths
from tts.serving.command.ports import Addresses
from tts.serving.command.server_command import server_command
from tts.serving.command.tritonserver import Docker, image

PORTS = {"grpc": 8001, "http": 8000, "metrics": 8002}
"""Any will do: how the command treats them is what is checked."""
CLOSED_BY = ("--grpc-restricted-protocol", "--http-restricted-api")
_CLOSED_APIS = "shared-memory,model-repository,trace,logging"
_NO_HEADER = "closed:to-all=nobody"
"""A header that a client would have to send to use these APIs, and cannot
(docs/explanation/security.md)."""


@pytest.mark.parametrize("name", TENSORRT)
def test_the_command_of_every_ready_made_deployment_is_as_it_should_be(name):
    deployment = BUNDLED[name]
    replicas = [gpus for e in deployment.engines().values() for gpus in e.placement.replicas]
    # whether the server is not the only rank of each engine: all but engines on GPU 0 alone
    has_ranks = {gpu for gpus in replicas for gpu in gpus} != {0}
    settings, ranks = LAUNCH["containers"]["settings"], LAUNCH["orchestrator"]
    repository = paths.repository_dir(name)
    loaded = [repository, *(paths.engine_dir(name, role) for role in deployment.engines())]
    environment = {
        **{"HOME": "/tmp", "USER": "tts"},
        **LAUNCH.get("environment", {}).get("variables", {}),
        **(ranks["environment"] if has_ranks else {}),
    }
    options = [
        *("docker", "run", "--rm", "--init", "--pull=never", "--gpus=all"),
        f"--shm-size={settings['--shm-size']}",
        *(f"--ulimit={limit}" for limit in settings["--ulimit"]),
        f"--user={os.getuid()}:{os.getgid()}",
        "--security-opt=no-new-privileges",
        *(f"--publish=127.0.0.1:{port}:{port}" for port in PORTS.values()),
        *(f"--mount=type=bind,src={path},dst={path},readonly" for path in loaded),
        *(f"--env={key}={value}" for key, value in environment.items()),
    ]
    inside = {  # the container, under mpirun if the server has ranks
        f"--model-repository={repository}",
        *(f"--{service}-port={port}" for service, port in PORTS.items()),
        *(f"--{service}-address=0.0.0.0" for service in PORTS),
        "--model-control-mode=none",
        *(f"{flag}={_CLOSED_APIS}:{_NO_HEADER}" for flag in CLOSED_BY),
        *(ranks["arguments"] if has_ranks else []),
    }
    addresses = Addresses("127.0.0.1", *PORTS.values())
    words = server_command(Docker(image(deployment)), deployment, addresses).words
    at = words.index(LAUNCH["containers"]["image"].replace("TAG", deployment.tensorrt.container))
    served = words[at + 1 :]
    assert sorted(w for w in words[:at] if not w.startswith("--name=")) == sorted(options)
    assert inside <= set(served)
    assert ("mpirun" in served) == has_ranks
    (server,) = (at for at, word in enumerate(served) if word.endswith("/tritonserver"))
    flags = {word.partition("=")[0] for word in served[server + 1 :]}
    assert flags <= set(LAUNCH["tritonserver_flags"])
