import pytest

from tts.gateway.ledger import Ledger
from tts.gateway.observability import Recorder, read_requests


def answered(record):
    """Fill in a record as a streamed answer does."""
    for i, name in enumerate(("t1", "t2", "t3", "t4", "t5", "t6")):
        setattr(record, name, record.t0 + (i + 1) / 10)
    record.model, record.outcome, record.status, record.stream = "demo", "ok", 200, True
    record.prompt_tokens, record.answer_tokens = 7, 5
    record.prompt, record.answer = "What?", "That."
    return record


def test_a_request_is_in_flight_until_it_ends_and_then_it_is_counted_once():
    recorder = Recorder()
    record = recorder.begin("/v1/completions")
    record.model = "demo"
    assert 'tts_gateway_requests_in_flight{model="demo"} 1' in recorder.metrics.exposition()
    recorder.end(answered(record))
    recorder.end(record)
    text = recorder.metrics.exposition()
    assert 'tts_gateway_requests_in_flight{model="demo"} 1' not in text
    labels = 'endpoint="/v1/completions",model="demo",outcome="ok",status="200"'
    assert f"tts_gateway_requests_total{{{labels}}} 1.0\n" in text
    assert 'tts_gateway_tokens_total{kind="answer",model="demo"} 5.0\n' in text


def test_what_waits_for_an_engine_is_queued():
    recorder = Recorder()
    first, second = recorder.begin("/a"), recorder.begin("/a")
    first.t1 = second.t1 = second.t2 = first.t0
    assert "tts_gateway_requests_queued 1.0\n" in recorder.metrics.exposition()


def test_own_latency_is_what_the_engines_did_not_take():
    record = answered(Recorder().begin("/a"))
    assert record.own_latency_s() == pytest.approx(0.2 + 0.2)
    assert record.time_per_token_s() == pytest.approx(0.1 / 4)
    record.t3 = None
    assert record.own_latency_s() is None


@pytest.mark.parametrize("keeps", [False, True])
def test_prompts_are_kept_only_if_asked(tmp_path, keeps):
    file = tmp_path / "gateway" / "gateway.db"
    recorder = Recorder(Ledger(file), keeps_prompts=keeps)
    recorder.end(answered(recorder.begin("/v1/completions")))
    recorder.close()
    (found,) = read_requests(file)
    assert (found.prompt, found.answer) == (("What?", "That.") if keeps else (None, None))
    assert found.t0 == 0
    assert found.t6 == pytest.approx(0.6)
    assert found.own_latency_s() == pytest.approx(0.4)


def test_a_request_that_was_refused_has_cost_nothing():
    record = Recorder().begin("/v1/completions")
    assert (record.prompt_tokens, record.answer_tokens) == (0, 0)
    assert (record.search_tokens, record.verifier_tokens) == (0, 0)
