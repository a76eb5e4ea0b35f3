"""How the gateway sets its process up; in processes of their own, as it is for good."""

import json
import os
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


def set_up(**variables):
    rest = {name: value for name, value in os.environ.items() if name != "GRPC_EXPERIMENTS"}
    words = [sys.executable, "-c", REPORT]
    done = subprocess.run(words, env=rest | variables, stdout=subprocess.PIPE, check=True)
    return json.loads(done.stdout)


def test_grpc_is_imported_with_the_experiment_that_only_this_process_gets():
    found = set_up()
    assert not found["early"]  # the command line alone does not import it
    assert found["experiments"] == "-event_engine_client"
    assert found["left"] is None


def test_experiments_that_the_environment_chooses_stay():
    found = set_up(GRPC_EXPERIMENTS="tcp_rcv_lowat")
    assert found["experiments"] == found["left"] == "tcp_rcv_lowat"


def test_threads_and_garbage_collection_hold_up_the_event_loop_little():
    found = set_up()
    assert found["switch"] < 0.001
    assert found["frozen"] > 1000
    assert found["young"] > 1000


def test_connections_leave_files_to_the_rest(monkeypatch):
    resource = pytest.importorskip("resource")
    limits = [(1024, 4096)]
    monkeypatch.setattr(resource, "getrlimit", lambda _: limits[-1])
    monkeypatch.setattr(resource, "setrlimit", lambda _, pair: limits.append(pair))
    assert process.most_connections() == 4096 - 512
    limits.append((1 << 20, 1 << 20))
    assert process.most_connections() == process.MOST_CONNECTIONS


def test_connections_leave_files_to_the_rest_where_no_more_files_can_be_had(monkeypatch):
    resource = pytest.importorskip("resource")

    def refused(_, pair):
        raise ValueError("current limit exceeds maximum limit")

    monkeypatch.setattr(resource, "getrlimit", lambda _: (1024, 4096))
    monkeypatch.setattr(resource, "setrlimit", refused)
    assert process.most_connections() == 1024 - 512
