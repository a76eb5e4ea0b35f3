"""Metrics of which every series has something."""

from tts.gateway.observability import Recorder


def counted():
    """The metrics of a gateway that has answered one request and works at another."""
    recorder = Recorder()
    record = recorder.begin("/v1/completions")
    record.t1 = record.t2 = record.t3 = record.t4 = record.t5 = record.t6 = record.t0 + 0.3
    record.model, record.stream, record.prompt_tokens, record.answer_tokens = "demo", True, 20, 3
    record.outcome, record.status = "ok", 200
    recorder.end(record)
    recorder.begin("/v1/completions").model = "demo"
    return recorder.metrics
