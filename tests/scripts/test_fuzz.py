"""Short forms of the fuzz program, and that it sees what it must."""

import itertools
import random
import subprocess
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import grpc
import pytest
from scripts.programs import command
from scripts.robustness.fuzz import attempts, campaign, files, readers, run_folders
from tests.amounts import amount

ROOT = Path(__file__).parents[2]
FOLDERS = amount(20, 40)


def test_some_hundred_hostile_files_are_read_or_refused_in_a_sentence():
    words = command("robustness.fuzz", "--files", amount(12, 40), "--seed", 7)
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    lines = done.stdout.splitlines()
    assert len(lines) == 23
    assert all(", 0 failed; " in line for line in lines)


def test_every_valid_file_is_read(tmp_path):
    for name, reader in readers.readers(ROOT / "tests" / "runs" / "v1_run").items():
        folder = tmp_path / name
        folder.mkdir()
        for beside in reader.beside:
            (folder / beside.name).symlink_to(beside)
        (folder / reader.file).write_bytes(files._file(reader, reader.valid))
        reader.read(folder)


def run_one(read, **options):
    reader = readers.Reader("file", b'{"a": [1, 2]}', read)
    return files.fuzz_files(reader, 3, 0, **options)


def test_a_traceback_is_a_failure():
    outcome = run_one(lambda folder: {}["missing"])
    assert [failure.number for failure in outcome.failures] == [0, 1, 2]
    assert "KeyError: 'missing'" in outcome.failures[0].error


def test_a_file_without_end_is_a_failure():
    def read(folder):
        while True:
            pass

    outcome = run_one(read, cpu_s=0.05, keep=1)
    assert [failure.error for failure in outcome.failures] == ["more than 0.05 s of CPU time"]


def test_a_file_that_eats_memory_is_a_failure():
    if not Path("/proc/self/statm").exists():
        pytest.skip("memory is bounded on Linux only")
    with files.memory_at_most(2**28):
        outcome = run_one(lambda folder: bytearray(2**30), keep=1)
    assert "MemoryError" in outcome.failures[0].error


def test_the_same_seed_gives_the_same_files():
    valid = b'{"a": [1, 2], "b": {"c": "d"}}\n{"e": null}\n'
    made = [
        [files.mutated(valid, random.Random(f"{seed}/{n}")) for n in range(50)]
        for seed in (1, 1, 2)
    ]
    assert made[0] == made[1] != made[2]
    assert len(set(made[0])) > 40


@pytest.mark.slow
def test_some_dozens_of_damaged_folders_never_show_a_changed_result():
    outcome = run_folders.fuzz_folders(FOLDERS, 7)
    assert outcome.failures == []
    assert outcome.same + outcome.refused.total() == FOLDERS
    assert outcome.refused.total() > FOLDERS / 2


def test_a_changed_result_and_a_traceback_are_failures(monkeypatch):
    folders = run_folders
    work = folders.RUN
    monkeypatch.setattr(folders, "DAMAGES", (lambda folder, other, numbers: None,))
    outcome = folders.FoldersResult()
    for read in (lambda folder: 2, lambda folder: {}["missing"]):
        monkeypatch.setattr(folders, "COMMANDS", {"report": ([work], read)})
        folders.read_one(Path(), random.Random(0), "case", {"report": 1}, outcome)
    changed, broken = outcome.failures
    assert "2\ninstead of\n1" in changed
    assert "KeyError: 'missing'" in broken


@pytest.mark.server
@pytest.mark.slow
def test_some_hundred_hostile_requests_leave_a_server_that_answers_as_before():
    words = command("robustness.fuzz", "--requests", 300, "--seed", 7)
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "0 failures (seed 7)" in done.stdout


class MadeUp(grpc.GenericRpcHandler):
    """A server that answers every method alike, and what a campaign asks of one."""

    def __init__(self, *, answers, deaths=(), known=False, sizes=()):
        self._answers, self._known = answers, known
        self._deaths = iter(deaths)
        self._sizes = iter(sizes)

    def __enter__(self):
        self._server = grpc.server(ThreadPoolExecutor(16), handlers=[self])
        self._port = self._server.add_insecure_port("127.0.0.1:0")
        self._server.start()
        return self

    def __exit__(self, *error):
        self._server.stop(0).wait()

    def service(self, call):
        def stream(requests, context):
            for request in requests:
                yield self._answers(call.method, request, context)

        def single(request, context):
            return self._answers(call.method, request, context)

        if call.method.endswith("StreamInfer"):
            return grpc.stream_stream_rpc_method_handler(stream)
        return grpc.unary_unary_rpc_method_handler(single)

    def address(self):
        return f"127.0.0.1:{self._port}"

    def new_deaths(self):
        return next(self._deaths, [])

    def crash_is_known(self):
        return self._known

    def resident(self):
        return {"it": next(self._sizes, 0)}


def refuses_what_is_closed(method, request, context):
    if any(word in method for word in ("Shared", "Repository", "Trace", "Log")):
        context.abort(grpc.StatusCode.UNAVAILABLE, "This protocol is restricted")
    return b""


def campaign_against(number=60, longest_s=30.0, **server):
    with MadeUp(**server) as made_up:
        bounds = campaign.Bounds(longest_s=longest_s, back_within_s=0.1)
        return campaign.fuzz_requests(made_up, number, 0, bounds)


def test_a_server_that_answers_everything_in_time_passes():
    report = campaign_against(answers=refuses_what_is_closed)
    assert report.failures == []
    assert sum(report.outcomes.values()) >= 60


def test_an_answer_of_a_closed_api_is_a_failure():
    report = campaign_against(answers=lambda method, request, context: b"")
    assert report.failures
    assert all("a closed API answered" in failure for failure in report.failures)


def test_a_request_without_an_answer_is_a_failure():
    def answers(method, request, context):
        if method.endswith("ModelConfig"):
            given_up = threading.Event()
            context.add_callback(given_up.set)
            given_up.wait(60)
        return refuses_what_is_closed(method, request, context)

    report = campaign_against(answers=answers, number=100, longest_s=0.5)
    assert any("/inference.GRPCInferenceService/ModelConfig" in line for line in report.failures)


def test_a_death_is_a_failure_unless_it_is_the_known_one_of_a_shared_stream():
    died = ["The Triton server was killed by SIGABRT."]
    options = {"answers": refuses_what_is_closed, "number": 200}
    first = campaign_against(deaths=[died], known=True, **options)
    assert first.failures == [f"after attempts 0 to 199: {died[0]}"]
    shared = campaign_against(deaths=[[], died], known=True, **options)
    assert (shared.failures, shared.known_crashes) == ([], 1)
    unknown = campaign_against(deaths=[[], died], known=False, **options)
    assert unknown.failures == [f"after shared stream 0: {died[0]}"]
    stub = campaign_against(
        deaths=[[], ["The Python stub of model prm died"]], known=True, **options
    )
    assert stub.failures == ["after shared stream 0: The Python stub of model prm died"]


def test_memory_that_grows_after_the_first_thousand_is_a_failure():
    sizes = [0, 2**30, 2**30, 2**30, 2**30, 2**31]
    report = campaign_against(number=1500, answers=refuses_what_is_closed, sizes=sizes)
    assert report.failures == ["memory grew by 1024 MiB"]


def test_models_that_no_longer_answer_are_a_failure():
    def answers(method, request, context):
        if method.endswith("/ModelInfer"):
            context.abort(grpc.StatusCode.INTERNAL, "the stub is gone")
        return refuses_what_is_closed(method, request, context)

    report = campaign_against(answers=answers)
    assert report.failures == ["the models do not answer after attempts 0 to 59"]


def test_the_same_seed_gives_the_same_requests():
    drawn = [list(itertools.islice(attempts.attempts(seed), 300)) for seed in (1, 1, 2)]
    assert drawn[0] == drawn[1] != drawn[2]
    assert len({attempt.kind for attempt in drawn[0]}) >= 8
    shared = [list(itertools.islice(attempts.shared_streams(seed), 20)) for seed in (1, 1)]
    assert shared[0] == shared[1]
