"""The generator behind a real Triton server, and the metrics of that server."""

import itertools
import queue
import time
import urllib.request
from functools import partial

import numpy as np
import psutil
import pytest
from tests.engines.triton_client import FINAL, PROMPT, infer, outputs, sampled

from tts.engines import statistics, wire
from tts.engines.generate_request import EngineLimits
from tts.engines.statistics import Statistics
from tts.engines.wire import Failure, decode_failure

pytestmark = [pytest.mark.server, pytest.mark.xdist_group("served")]


def test_a_request_gets_one_final_response(client):
    (answer,) = client.open(infer("generator", request_id="r1", **sampled(return_log_probs=True)))
    response = answer.infer_response
    assert response.id == "r1"
    assert response.parameters[FINAL].bool_param
    out = outputs(response)
    assert out["output_ids"].shape == (1, 1, 8)
    assert out["sequence_length"].tolist() == [[8]]
    assert out["output_log_probs"].shape == (1, 1, 8)
    assert out["cum_log_probs"][0, 0] == pytest.approx(out["output_log_probs"].sum(), abs=1e-4)


def test_the_output_may_be_empty(client):
    (first,), _ = client.generate(**sampled(output=1))
    assert client.generate(**sampled(output=1, end_id=first)) == ([], "")


def test_streaming_sends_deltas(client):
    whole, _ = client.generate(**sampled())
    answers = [a.infer_response for a in client.open(infer("generator", **sampled(streaming=True)))]
    parts = [outputs(answer)["output_ids"].ravel().tolist() for answer in answers]
    assert list(itertools.chain(*parts)) == whole
    assert [a.parameters[FINAL].bool_param for a in answers] == [False] * (len(parts) - 1) + [True]


INT64 = np.array([PROMPT], dtype=np.int64)
BAD = {
    "ids outside the vocabulary": ({"prompt": (5, 128)}, "the id 128"),
    "wrong type": ({"input_ids": INT64}, "expects 'INT32'"),
    "missing prompt": ({"input_ids": None}, "input_ids is required"),
    "undeclared tensor": ({"names": ("nonsense",)}, "nonsense"),
    "outputs without length": ({"names": ("output_ids",)}, "sequence_length must be among"),
}

ATTEMPTS = 20
"""An engine so small may have ended a request before another one reaches it."""


@pytest.mark.parametrize("case", BAD)
def test_a_bad_request_is_refused_and_the_next_one_works(client, case):
    change, reason = BAD[case]
    reference, _ = client.generate(**sampled())
    tokens, error = client.generate(**{**sampled(), **change})
    assert tokens == []
    assert reason in error
    assert client.generate(**sampled()) == (reference, "")


def by_rows(client_id, first, *rows, **same):
    """A request of rows, each of which is a prompt's length and how many tokens it asks for."""
    prompts = np.zeros((len(rows), max(length for length, _ in rows)), np.int32)
    for prompt, (length, _) in zip(prompts, rows, strict=True):
        prompt[:length] = PROMPT[:length]
    column = partial(np.array, dtype=np.int32)
    request = infer(
        "generator",
        request_id=wire.rows_id(client_id, first),
        names=("output_ids", "sequence_length", *wire.ROW_OUTPUTS),
        input_ids=prompts,
        input_lengths=column([[length] for length, _ in rows]),
        request_output_len=column([[tokens] for _, tokens in rows]),
        runtime_top_p=np.ones((len(rows), 1), np.float32),
        seed=np.array([[first + row] for row in range(len(rows))], np.uint64),
        **same,
    )
    request.parameters[wire.FIRST_ROW].int64_param = first
    return request


def row_answers(answers):
    """What each row got, token ids or an error, in the order of answering; which were final."""
    found, final = {}, []
    for answer in answers:
        assert not answer.error_message
        response = answer.infer_response
        raw = dict(
            zip((o.name for o in response.outputs), response.raw_output_contents, strict=True)
        )
        numbers = np.frombuffer(raw["batch_index"], np.int32)
        errors = wire.decode_texts(raw["error"]) if "error" in raw else [""] * len(numbers)
        ids = np.zeros((len(numbers), 0), np.int32)
        if "output_ids" in raw:
            ids = np.frombuffer(raw["output_ids"], np.int32).reshape(len(numbers), -1)
            lengths = np.frombuffer(raw["sequence_length"], np.int32)
            ids = [row[:length].tolist() for row, length in zip(ids, lengths, strict=True)]
        for number, row, error in zip(numbers.tolist(), ids, errors, strict=True):
            assert number not in found
            found[number] = error or row
        final.append(response.parameters[FINAL].bool_param)
    return found, final


def test_rows_are_answered_as_they_finish_as_each_would_be_alone(client):
    rows = [(30, 200), (4, 2), (12, 90), (30, 2)]
    found, final = row_answers(client.open(by_rows("a", 7, *rows)))
    assert list(found) != sorted(found), "the first row takes longest"
    assert final == [False] * (len(final) - 1) + [True]
    for number, (length, tokens) in enumerate(rows, 7):
        alone = client.generate(**sampled(number, prompt=PROMPT[:length], output=tokens))
        assert (found[number], "") == alone
    assert client.at_rest("generator")


def test_requests_of_one_client_are_answered_by_its_latest(client):
    requests = [by_rows("b", 1, (30, 150), (30, 60)), by_rows("b", 3, (9, 100), (9, 3))]
    answers = list(client.stub.ModelStreamInfer(iter(requests), timeout=60))
    found, final = row_answers(answers)
    assert sorted(found) == [1, 2, 3, 4]
    assert sum(final) in (1, 2)  # two if the first were done when the second came
    assert final[-1]
    assert client.at_rest("generator")


def test_a_bad_row_fails_alone(client):
    request = by_rows("c", 1, (30, 5), (30, -1), (5, 5))
    found, final = row_answers(client.open(request))
    assert decode_failure(found[2])[0] is Failure.REFUSED
    assert "request_output_len is -1" in found[2]
    assert [len(found[number]) for number in (1, 3)] == [5, 5]
    assert sum(final) == 1
    found, final = row_answers(client.open(by_rows("c", 1, (30, -1), (30, -2))))
    assert all("request_output_len" in error for error in found.values())
    assert final[-1]


def test_stopping_a_row_leaves_the_others(client):
    requests: queue.SimpleQueue = queue.SimpleQueue()
    requests.put(by_rows("d", 1, (30, 220), (30, 220), (30, 1)))
    answers = client.stub.ModelStreamInfer(iter(requests.get, None), timeout=60)
    first = [next(answers)]  # of the short row: all run
    requests.put(infer("generator", request_id="d-2", stop=True))
    requests.put(None)
    rest = [answer for answer in answers if not answer.error_message]  # it may have come too late
    found, _ = row_answers(first + rest)
    assert len(found[1]) == 220
    assert found[2] == "[cancelled] the request was cancelled" or len(found[2]) == 220
    assert client.at_rest("generator")


def test_rows_of_a_client_that_goes_end(client):
    call = client.open(by_rows("e", 1, *[(30, 220)] * 3, (30, 1)))
    next(call)
    call.cancel()
    assert client.at_rest("generator")


@pytest.mark.parametrize(
    ("client_id", "first", "parameter", "reason"),
    [
        ("f", 1, -1, "first_row is -1"),
        ("f", 1, 2, "by rows it must be CLIENT-2+"),
        ("", 1, 1, "by rows it must be CLIENT-1+"),
    ],
)
def test_a_request_by_rows_names_its_rows(client, client_id, first, parameter, reason):
    request = by_rows(client_id, first, (30, 1))
    request.parameters[wire.FIRST_ROW].int64_param = parameter
    (answer,) = client.open(request)
    assert reason in answer.error_message


def test_cancelling_the_stream_frees_slot_and_blocks(client):
    calls = [client.open(infer("generator", output=220, streaming=True)) for _ in range(8)]
    for call in calls:
        next(call)
        call.cancel()
    assert client.at_rest("generator")


def test_a_stop_request_ends_the_running_one_which_says_that_it_was_cancelled(client):
    stop = infer("generator", request_id="run", stop=True, empty_final=True)
    for _ in range(ATTEMPTS):
        running = client.open(infer("generator", request_id="run", output=220, streaming=True))
        next(running)
        (answer,) = client.open(stop)
        *_, last = running
        if not answer.error_message and last.error_message:  # else it had just ended by itself
            break
    assert not answer.error_message
    assert not answer.infer_response.outputs
    assert decode_failure(last.error_message) == (
        Failure.CANCELLED,
        "the request was cancelled",
    )
    assert client.at_rest("generator")


@pytest.mark.slow
def test_fifty_megabytes_are_refused_and_leave_the_server_no_larger_the_second_time(client, server):
    """Triton takes a message in before a model sees it; what it keeps of it must not add up."""
    processes = [psutil.Process(server.state.server.pid)]
    processes += processes[0].children(recursive=True)

    def resident() -> int:
        return sum(process.memory_info().rss for process in processes)

    after = []
    for _ in range(5):
        text = client.generate(prompt=[1] * 13_000_000)[1]
        assert "13000000 tokens; the longest admissible prompt is" in text
        after.append(resident())
    assert min(after[3:]) < after[1] + 50_000_000  # one text may be freed late; two are kept
    assert client.generate(**sampled())[1] == ""


def test_a_stop_request_without_a_running_one_is_refused(client):
    assert "no running request has the id 'x'" in client.generate(request_id="x", stop=True)[1]
    assert "needs the request id" in client.generate(stop=True)[1]


def test_a_reset_of_the_prefix_cache_is_refused_while_requests_are_in_flight(client):
    alone, _ = client.generate(**sampled(output=200))
    reset = infer("generator", output=1)
    reset.parameters[wire.RESET_PREFIX_CACHE].bool_param = True
    for _ in range(ATTEMPTS):
        running = client.open(infer("generator", **sampled(output=200, streaming=True)))
        parts = [next(running)]
        (answer,) = client.open(reset)
        parts += running
        streamed = [outputs(part.infer_response)["output_ids"].ravel().tolist() for part in parts]
        assert list(itertools.chain(*streamed)) == alone
        if answer.error_message:
            break
    assert decode_failure(answer.error_message)[0] is Failure.IN_USE
    assert client.at_rest("generator")
    (answer,) = client.open(reset)
    assert answer.error_message == ""
    assert client.generate(**sampled(output=200)) == (alone, "")


def test_the_metrics_have_the_names_of_tensorrt_llm(client):
    assert client.at_rest("generator")
    gauges = client.gauges("generator")
    expected = statistics.gauges(Statistics(), EngineLimits(1, 1, 1, 1, 1, 1))
    assert gauges.keys() >= {f"{each.name}/{each.kind}" for each in expected}
    assert gauges["nv_trt_llm_request_metrics/max"] == 8
    assert gauges["nv_trt_llm_kv_cache_block_metrics/max"] == 64
    assert gauges["nv_trt_llm_general_metrics/iteration_counter"] > 0


def test_the_token_lengths_are_counted(client):
    def counted() -> dict[tuple[str, str], float]:
        with urllib.request.urlopen(client.metrics_url, timeout=60) as answer:
            lines = [ln for ln in answer.read().decode().splitlines() if '"generator"' in ln]
        return {
            (length, part): float(line.rsplit(" ", 1)[1])
            for length in ("input", "output")
            for part in ("count", "sum")
            for line in lines
            if line.startswith(f"nv_llm_{length}_token_len_{part}{{")
        }

    def settled() -> dict[tuple[str, str], float]:
        """The counters are published now and then, one after another."""
        seen, now = {}, counted()
        while now != seen:
            time.sleep(0.5)
            seen, now = now, counted()
        return now

    before = after = settled()
    client.generate(**sampled(output=8))
    client.generate(**sampled(output=0))  # refused: not counted
    deadline = time.monotonic() + 60
    while after == before and time.monotonic() < deadline:
        after = settled()
    assert {key: value - before[key] for key, value in after.items()} == {
        ("input", "count"): 1,
        ("input", "sum"): len(PROMPT),
        ("output", "count"): 1,
        ("output", "sum"): 8,
    }
