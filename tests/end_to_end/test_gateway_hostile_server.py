"""A gateway under wrong, cut and silent clients, made-up requests, and kill -9."""

import json
import subprocess
import sys
import threading
import time

import pytest
from tests.amounts import amount
from tests.end_to_end import hostile_requests as hostile
from tests.end_to_end.commands import Tts
from tests.end_to_end.gateways import gateway, post, started

pytestmark = pytest.mark.server
LOST_S = 1.0
"""Documented: 0.1 s; here others have the CPU, too."""


@pytest.fixture(scope="module")
def tts(new_served_home):
    return Tts(new_served_home())


@pytest.fixture(scope="module")
def address(tts):
    with gateway(tts) as address:
        yield address


def test_no_hostile_request_gets_an_answer_of_500_or_hangs(address):
    each = amount(6, 100)
    seen = hostile.run(address, each, 0)
    assert [name for name in seen if ": 5" in name] == []
    assert seen["nothing wrong: 200"] == each
    for name, request in hostile.OVERSIZE.items():
        assert hostile.exchange(address, request) in (413, None), name


@pytest.mark.slow
def test_no_request_made_up_from_the_document_gets_an_answer_of_500(address, tmp_path):
    pytest.importorskip("schemathesis", reason="schemathesis is not installed")
    words = ["run", f"{address}/openapi.json", "--checks", "not_a_server_error", "--seed", "0"]
    words += ["--max-examples", str(amount(2, 10)), "--phases", "fuzzing"]
    done = subprocess.run(
        [sys.executable, "-m", "schemathesis.cli", *words],
        capture_output=True,
        text=True,
        check=False,
        cwd=tmp_path,  # it keeps files where it runs
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_silent_connections_end_and_delay_nobody(address):
    hostile.run_idle(address, amount(300, 1000))


def test_the_log_of_a_gateway_that_is_killed_holds_what_it_has_answered(tts):
    process, address = started(tts)
    answered, ended, since = [], threading.Event(), time.time()

    def ask():
        while not ended.is_set():
            try:
                if hostile.exchange(address, post(hostile.chat())) == 200:
                    answered.append(time.monotonic())
            except OSError:
                return

    threads = [threading.Thread(target=ask) for _ in range(4)]
    for thread in threads:
        thread.start()
    time.sleep(2 + LOST_S)
    killed = time.monotonic()
    process.kill()
    process.communicate(timeout=60)
    ended.set()
    for thread in threads:
        thread.join()
    out, _ = tts.done("gateway", "requests", "demo", "--format", "jsonl")
    logged = [json.loads(line) for line in out.splitlines()]
    ok = sum(record["time"] >= since and record["outcome"] == "ok" for record in logged)
    due = sum(at < killed - LOST_S for at in answered)
    assert 0 < due <= ok
