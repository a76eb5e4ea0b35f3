"""How the gateway sets its process up; in one of its own, as it is for good."""

import json
import os
import resource
import subprocess
import sys

import pytest

from tts.gateway import process

REPORT = """
import gc, json, os, sys
import tts.cli.gateway
early = "grpc" in sys.modules
from tts.gateway import process
seen = []
sys.addaudithook(lambda event, arguments: event == "import" and arguments[0] == "grpc"
    and seen.append(os.environ.get("GRPC_EXPERIMENTS")))
process.set_up()
import grpc
process.started()
print(json.dumps({
    "early": early, "experiments": seen[0], "left": os.environ.get("GRPC_EXPERIMENTS"),
    "switch": sys.getswitchinterval(), "frozen": gc.get_freeze_count(),
    "young": gc.get_threshold()[0],
}))
"""


def test_threads_and_garbage_collection_hold_up_little_and_grpc_polls_in_this_process_alone():
    rest = {name: value for name, value in os.environ.items() if name != "GRPC_EXPERIMENTS"}
    words = [sys.executable, "-c", REPORT]
    found = json.loads(subprocess.run(words, env=rest, stdout=subprocess.PIPE, check=True).stdout)
    assert not found["early"]  # the command line alone does not import it
    assert found["experiments"] == "-event_engine_client"
    assert found["left"] is None
    assert found["switch"] < 0.001
    assert found["frozen"] > 1000
    assert found["young"] > 1000


def test_experiments_that_the_environment_chooses_stay(monkeypatch):
    monkeypatch.setenv(process.EXPERIMENTS, "tcp_rcv_lowat")
    monkeypatch.setattr(sys, "setswitchinterval", lambda seconds: None)
    process.set_up()
    assert os.environ[process.EXPERIMENTS] == "tcp_rcv_lowat"


@pytest.mark.parametrize(
    ("limits", "allowed", "connections"),
    [
        ((1024, 4096), True, 4096 - 512),
        ((1024, 4096), False, 1024 - 512),  # where no more files can be had
        ((100, 100), True, 64),
        ((1 << 20, 1 << 20), True, process.MAX_CONNECTIONS),
    ],
)
def test_connections_leave_files_to_the_rest(monkeypatch, limits, allowed, connections):
    found = [limits]

    def set_limit(_, pair):
        if not allowed:
            raise ValueError("current limit exceeds maximum limit")
        found.append(pair)

    monkeypatch.setattr(resource, "getrlimit", lambda _: found[-1])
    monkeypatch.setattr(resource, "setrlimit", set_limit)
    assert process.max_connections() == connections
