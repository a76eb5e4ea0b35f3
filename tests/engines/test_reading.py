"""The log-probabilities of a text, and the likeliest tokens: those of the model, by numpy."""

from dataclasses import replace

import numpy as np
import pytest
from tests.engines.host_requests import prompt, sampled
from tests.engines.numpy_llama import llama_logits

from tts.build.errors import RequestError
from tts.engines.generate_request import GenerateRequest, Limits, check_request


def by_numpy(pair, ids):
    logits = llama_logits(pair.generator.checkpoint, ids).astype(np.float64)
    return logits - np.log(np.exp(logits).sum(axis=-1, keepdims=True))


@pytest.mark.parametrize("piece", [5, 128])
def test_a_text_is_as_likely_as_the_model_says(open_host, pair, piece):
    host = open_host(max_num_tokens=piece)
    ids = prompt(3, 40)
    (response,) = host.run(GenerateRequest(ids, 1, top_log_probs=3))
    expected = by_numpy(pair, ids)[:-1]
    own = expected[np.arange(len(ids) - 1), ids[1:]]
    assert response.log_probs == pytest.approx(own.tolist(), abs=1e-3)
    ranked = np.argsort(-expected, axis=-1)[:, :3]
    for row, wanted, given in zip(expected, ranked, response.top, strict=True):
        tokens, log_probs = zip(*given, strict=True)
        assert list(tokens) == wanted.tolist()
        assert list(log_probs) == pytest.approx(row[wanted].tolist(), abs=1e-3)


def test_it_agrees_with_what_was_drawn_and_disturbs_nothing(generator):
    request = sampled(7, n=12, return_log_probs=True)
    (alone,) = generator.run(request)
    ids = np.array([*request.input_ids.tolist(), *alone.token_ids])
    read, beside = generator.run(GenerateRequest(ids, 1, top_log_probs=0), request)
    assert beside == alone
    assert read.log_probs[-12:] == pytest.approx(alone.log_probs, abs=1e-3)
    assert read.token_ids == []
    assert read.top == [[]] * (len(ids) - 1)


@pytest.mark.parametrize(
    ("changes", "length", "said"),
    [
        ({"labels": 2}, 5, "not supported by this engine"),
        ({"host": False}, 5, "not supported by this engine"),
        ({}, 1, "two tokens"),
        ({}, 65, "the longest admissible prompt is 64"),
    ],
)
def test_what_cannot_be_read_is_refused(changes, length, said):
    limits = Limits(128, 64, 64, 16, 8, 4, host=True)
    request = GenerateRequest(np.ones(length, np.int64), 1, top_log_probs=1)
    with pytest.raises(RequestError, match=said):
        check_request(request, replace(limits, **changes))
