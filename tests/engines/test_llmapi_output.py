"""From a request to SamplingParams, and from what `LLM` gives to responses. Pure."""

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tts.engines.generate_request import GenerateRequest
from tts.engines.llmapi.output import (
    NO_END_ID,
    LlmOutput,
    is_watched,
    sampling_arguments,
    score_logits,
)
from tts.engines.responses import Response, first_probability

PROMPT = np.arange(3)
words = st.lists(st.integers(0, 9), min_size=1, max_size=3).map(tuple)


requests = st.builds(
    GenerateRequest,
    input_ids=st.just(PROMPT),
    max_new_tokens=st.integers(1, 40),
    end_id=st.none() | st.integers(0, 9),
    stop_words=st.lists(words, max_size=4).map(tuple),
    temperature=st.sampled_from([0.0, 0.6, 1.0]),
    top_p=st.sampled_from([0.0, 0.9, 1.0]),
    top_k=st.sampled_from([0, 1, 40]),
    seed=st.integers(0, 2**64 - 1),
    return_log_probs=st.booleans(),
    streaming=st.booleans(),
)


def is_greedy(arguments: dict[str, Any]) -> bool:
    """TensorRT-LLM's rule (facts.json, behaviour.greedy)."""
    values = [arguments.get(name) for name in ("temperature", "top_k", "top_p")]
    temperature, top_k, top_p = values
    return values == [None] * 3 or top_k == 1 or top_p == 0.0 or temperature == 0


@given(requests, st.booleans())
def test_what_is_asked_is_what_is_meant(request: GenerateRequest, one_sampler: bool):
    arguments = sampling_arguments(request, one_sampler=one_sampler)
    assert is_greedy(arguments) == request.greedy
    assert arguments["max_tokens"] == request.max_new_tokens
    assert arguments.get("seed", request.seed) == request.seed
    # a request without an end id must not end at one
    endless = request.end_id is None or (request.end_id,) in request.stop_words
    assert (arguments["end_id"] == NO_END_ID) == (endless and not one_sampler)
    assert arguments.get("ignore_eos", False) == (endless and one_sampler)
    wanted = 0 if one_sampler else 1
    assert arguments.get("logprobs") == (wanted if request.return_log_probs else None)
    assert arguments["pad_id"] == max(arguments["end_id"], 0)
    assert {arguments["detokenize"], arguments["add_special_tokens"]} == {False}


@given(requests, st.booleans())
def test_every_stop_word_ends_the_output_here_or_there(request: GenerateRequest, one_sampler: bool):
    arguments = sampling_arguments(request, one_sampler=one_sampler)
    there = set(arguments.get("stop_token_ids", [])) | {arguments["end_id"]}
    if arguments.get("ignore_eos"):
        there = set()
    for word in request.stop_words:
        watched = is_watched(request, one_sampler=one_sampler)
        assert (len(word) == 1 and word[0] in there) or watched


def completion(tokens: list[int], reason: str | None = None) -> SimpleNamespace:
    probs = [{token: SimpleNamespace(logprob=-float(token))} for token in tokens]
    return SimpleNamespace(
        token_ids=tokens, finish_reason=reason, logprobs=probs, generation_logits=None
    )


def engine(
    request: GenerateRequest, tokens: list[int], *, keeps_end_id: bool, one_sampler: bool = False
) -> Any:
    """What an engine hands out that knows the end id and single stop words, step by step."""
    asked = sampling_arguments(request, one_sampler=one_sampler)
    ignored = asked.get("ignore_eos")
    stops = set() if ignored else set(asked.get("stop_token_ids", []))
    end_id = None if ignored else asked["end_id"]
    end, reason = min(len(tokens), request.max_new_tokens), "length"
    for index, token in enumerate(tokens[:end]):
        if token == end_id or token in stops:
            end, reason = index + 1, "stop"
            break
    whole = tokens[:end]
    if reason == "stop" and whole[-1] == end_id and not keeps_end_id:
        whole = whole[:-1]
    for length in range(1, end):
        yield completion(whole[:length]), False
    yield completion(whole, reason), True


def expected(request: GenerateRequest, tokens: list[int]) -> list[int]:
    """The tokens that the wire contract promises."""
    made: list[int] = []
    for token in tokens[: request.max_new_tokens]:
        if token == request.end_id and (token,) not in request.stop_words:
            return made
        made.append(token)
        if any(tuple(made[-len(word) :]) == word for word in request.stop_words):
            return made
    return made


def answers(request: GenerateRequest, given: Any, *, one_sampler: bool = False) -> list[Response]:
    output, responses = LlmOutput(request, {}), []
    steps, watched = list(given), is_watched(request, one_sampler=one_sampler)
    for state, finished in steps if watched else steps[-1:]:
        if response := output.advance(state, finished=finished):
            responses.append(response)
            if response.final:
                break
    return responses


@given(
    requests,
    st.lists(st.integers(0, 9), min_size=40, max_size=40),
    st.booleans(),
    st.booleans(),
)
def test_the_answer_is_what_the_wire_promises(
    request: GenerateRequest, tokens: list[int], keeps_end_id: bool, one_sampler: bool
):
    steps = engine(request, tokens, keeps_end_id=keeps_end_id, one_sampler=one_sampler)
    responses = answers(request, steps, one_sampler=one_sampler)
    assert [r.final for r in responses] == [False] * (len(responses) - 1) + [True]
    together = [token for response in responses for token in response.token_ids]
    assert together == expected(request, tokens)
    if not request.streaming:
        assert len(responses) == 1
    if request.return_log_probs:
        assert responses[-1].log_probs == [-float(token) for token in together]
    assert responses[-1].error is None


@pytest.mark.parametrize("reason", ["timeout", "cancelled", None, "not_finished"])
def test_an_end_that_nobody_asked_for_is_an_error(reason: str | None):
    (response,) = answers(GenerateRequest(PROMPT, 4), [(completion([1], reason), True)])
    assert response.error == f"the engine ended the request: {reason}"


def test_log_probabilities_that_are_numbers_are_taken_too():
    request = GenerateRequest(PROMPT, 2, return_log_probs=True)
    given_numbers = completion([1, 2], "length")
    given_numbers.logprobs = [-0.5, -1.5]
    (response,) = answers(request, [(given_numbers, True)])
    assert response.log_probs == [-0.5, -1.5]


class Tensor:
    """A tensor that is on a GPU, in 16 bits: an array only after both have been changed."""

    def __init__(self, array: Any, done: tuple[str, ...] = ()) -> None:
        self._array, self._done = array, done

    def __getitem__(self, index: int) -> "Tensor":
        return Tensor(self._array[index], self._done)

    def float(self) -> "Tensor":
        return Tensor(self._array, (*self._done, "float"))

    def cpu(self) -> "Tensor":
        return Tensor(self._array, (*self._done, "cpu"))

    def numpy(self) -> Any:
        assert set(self._done) == {"float", "cpu"}
        return self._array


def test_the_labels_are_read_from_the_row_that_chose_the_first_token():
    rows = np.arange(20, dtype=np.float32).reshape(2, 10)
    request = GenerateRequest(PROMPT, 1, return_generation_logits=True)
    given_logits = completion([7], "length")
    given_logits.generation_logits = Tensor(rows)
    response = LlmOutput(request, {7: 1.0, 2: 0.0}).advance(given_logits, finished=True)
    assert response is not None
    assert response.label_logits == (7.0, 2.0)


floats = st.floats(-60, 60, width=32)


@given(
    st.lists(st.tuples(floats, st.floats(0, 1, width=32)), min_size=2, max_size=20).filter(
        lambda graded: len({weight for _, weight in graded}) > 1
    )
)
def test_a_score_is_the_mean_weight_of_the_labels(graded: list[tuple[float, float]]):
    logits, weights = (np.array(each, np.float32) for each in zip(*graded, strict=True))
    two = score_logits(Tensor(logits[None]), dict(enumerate(weights.tolist())))
    shares = np.exp(logits - logits.max())
    assert first_probability(two) == pytest.approx(weights @ shares / shares.sum(), abs=1e-6)
