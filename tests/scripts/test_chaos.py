"""Parts of the chaos program: its faults happen, and it sees what it must."""

import json
import os
import socket
import subprocess
import sys
import threading
from contextlib import suppress

import pytest
from scripts.robustness.chaos.cases import draw, what_is_wrong
from scripts.robustness.chaos.faults import FAULTS
from scripts.robustness.chaos.proxy import Proxy
from scripts.robustness.chaos.runs import Run, orphans
from scripts.robustness.chaos.surroundings import Clock, build_clock

from tts.strategies.names import STRATEGY_NAMES


@pytest.fixture
def upstream(tmp_path):
    """The address of a server that sends back what it gets, connection by connection."""

    def serve(connection):
        with connection, suppress(OSError):  # it was cut
            while data := connection.recv(1000):
                connection.sendall(data)

    def accept():
        while True:
            try:
                connection, _ = listening.accept()
            except OSError:
                return
            threading.Thread(target=serve, args=(connection,), daemon=True).start()

    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(tmp_path / "socket"))
        listening.listen()
        thread = threading.Thread(target=accept)
        thread.start()
        yield tmp_path / "socket"
        listening.shutdown(socket.SHUT_RDWR)
        thread.join()


@pytest.fixture
def proxy(upstream):
    proxy = Proxy(upstream)
    yield proxy
    proxy.close()


def connect(proxy):
    return socket.create_connection(("127.0.0.1", proxy.port), timeout=30)


def echoed(client, data):
    client.sendall(data)
    return client.recv(len(data))


def test_the_proxy_passes_everything_on(proxy):
    with connect(proxy) as one, connect(proxy) as other:
        assert echoed(one, b"one") == b"one"
        assert echoed(other, b"other") == b"other"
        proxy.delay(0.01, 0)
        proxy.hold(0)
        assert echoed(one, b"more") == b"more"


def test_a_held_message_comes_later(proxy):
    with connect(proxy) as client:
        holding = threading.Thread(target=proxy.hold, args=(0.3,))
        holding.start()
        assert echoed(client, b"late") == b"late"
        holding.join()


@pytest.mark.parametrize("reset", [False, True])
def test_a_cut_ends_connections_and_the_next_one_works(proxy, reset):
    with connect(proxy) as client:
        assert echoed(client, b"one") == b"one"
        proxy.cut(0.5, reset=reset, away_s=0)
        if reset:
            with pytest.raises(ConnectionResetError):
                client.recv(1)
        else:
            assert client.recv(1) == b""
    with connect(proxy) as client:
        assert echoed(client, b"two") == b"two"


def test_a_cut_passes_a_part_of_the_next_message(proxy):
    with connect(proxy) as client:
        assert echoed(client, b"one") == b"one"
        cutting = threading.Thread(
            target=proxy.cut, args=(0.5,), kwargs={"reset": False, "away_s": 0}
        )
        cutting.start()
        while not proxy._away:
            pass
        client.sendall(b"01234567")
        cutting.join()
        assert client.recv(100) in (b"", b"01")  # half of the way there, of which half comes back


def test_a_clock_jumps_and_the_monotonic_one_does_not(tmp_path):
    library = build_clock(tmp_path)
    if library is None:
        pytest.skip("there is no C compiler")
    clock = Clock(library, tmp_path / "clock")
    code = """
import time
before = time.time(), time.monotonic()
print("begun", flush=True)
input()
print(round(time.time() - before[0], -3), round(time.monotonic() - before[1], -3))
"""
    process = subprocess.Popen(
        [sys.executable, "-c", code],
        env={**os.environ, **clock.variables},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout.readline() == "begun\n"
    clock.jump(3600)
    assert process.communicate("\n")[0] == "4000.0 0.0\n"


def test_a_case_depends_on_its_number_alone():
    faults = sorted(FAULTS)
    cases = [draw(number, 1, faults) for number in range(400)]
    assert cases[7] == draw(7, 1, faults)
    assert cases[7].rng.random() == draw(7, 1, faults).rng.random()
    assert {case.fault for case in cases} == set(faults)
    assert {case.strategy for case in cases} == set(STRATEGY_NAMES)
    assert len({case.schedule for case in cases}) == 4


def finished(folder, digest="d", answers=("1", "2")):
    """A run that is complete, as its folder shows it."""
    folder.mkdir()
    (folder / "summary.json").write_text(json.dumps({"tree_digest": digest}))
    events = [
        {"event": "problem_solved", "problem": f"p{n}", "answers": {"best": a}, "correct": None}
        for n, a in enumerate(answers)
    ]
    (folder / "events.jsonl").write_text("".join(json.dumps(e) + "\n" for e in events))
    return Run(folder.parent, folder, "greedy")


def test_a_wrong_answer_a_double_solution_and_another_tree_are_seen(tmp_path):
    right = finished(tmp_path / "right").outcome()
    assert finished(tmp_path / "same").outcome().differs(right) is None
    wrong = {
        "wrong answers to 1 problems, such as p1": {"answers": ("1", "3")},
        "wrong answers to 2 problems, such as p0": {"answers": ()},
        "3 solutions in the log, not 2": {"answers": ("1", "2", "x")},
        "its digest is e, not d": {"digest": "e"},
    }
    for number, (said, changed) in enumerate(wrong.items()):
        run = finished(tmp_path / str(number), **changed)
        assert run.outcome().differs(right) == said


def test_what_a_run_leaves_is_seen(tmp_path):
    run = finished(tmp_path / "run")
    temporary, sockets = tmp_path / "tmp", tmp_path / "sockets"
    (temporary / "inner").mkdir(parents=True)
    sockets.mkdir()
    known = orphans()
    said = what_is_wrong([run], run, temporary, sockets, known)
    assert said == "temporary files are left: ['inner']"
    (temporary / "inner").rmdir()
    assert what_is_wrong([run], run, temporary, sockets, known) is None
    (sockets / "grpc:1").touch()
    assert "sockets are left" in what_is_wrong([run], run, temporary, sockets, known)


@pytest.mark.parametrize(
    ("code", "said", "wrong"),
    [
        (0, "", None),
        (1, "error: The disk is full.", None),
        (130, "Interrupted.", None),
        (-9, "", None),
        (3, "", "exit 3 without a sentence"),
        (1, "Traceback (most recent call last):", "a bug"),
        (70, "error: tts failed with KeyError: 'x'\nThis is a bug", "a bug"),
    ],
)
def test_a_process_must_end_by_a_sentence(tmp_path, code, said, wrong):
    run = Run(tmp_path, tmp_path / "run", "greedy")
    end = f"os.kill(os.getpid(), {-code})" if code < 0 else f"sys.exit({code})"
    process = subprocess.Popen([sys.executable, "-c", f"import os, sys; {end}"])
    process.wait()
    run.started.append(process)
    (tmp_path / "run.0.err").write_text(said)
    found = run.how_it_ended(0)
    assert (found or "").startswith(wrong or "")
    assert (found is None) == (wrong is None)
