"""How the gateway sets its process up; in processes of their own, as it is for good."""

import json
import os
import subprocess
import sys

REPORT = """
import json, os, sys
import tts.cli.gateway
early = "grpc" in sys.modules
from tts.gateway import process
seen = []
sys.addaudithook(lambda event, arguments: event == "import" and arguments[0] == "grpc"
    and seen.append(os.environ.get("GRPC_EXPERIMENTS")))
process.set_up()
import grpc
print(json.dumps([early, seen[0], os.environ.get("GRPC_EXPERIMENTS"), sys.getswitchinterval()]))
"""


def set_up(**variables):
    rest = {name: value for name, value in os.environ.items() if name != "GRPC_EXPERIMENTS"}
    words = [sys.executable, "-c", REPORT]
    done = subprocess.run(words, env=rest | variables, stdout=subprocess.PIPE, check=True)
    return json.loads(done.stdout)


def test_grpc_is_imported_with_the_experiment_that_only_this_process_gets():
    early, experiments, left, _ = set_up()
    assert not early  # the command line alone does not import it
    assert experiments == "-event_engine_client"
    assert left is None


def test_experiments_that_the_environment_chooses_stay():
    _, experiments, left, _ = set_up(GRPC_EXPERIMENTS="tcp_rcv_lowat")
    assert experiments == left == "tcp_rcv_lowat"


def test_a_thread_that_waits_for_the_interpreter_gets_it_soon():
    assert set_up()[3] < 0.001
