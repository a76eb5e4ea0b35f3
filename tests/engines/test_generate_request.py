import tracemalloc
from contextlib import nullcontext
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from msgspec import structs

from tts.base.errors import RequestError
from tts.engines import wire
from tts.engines.generate_request import (
    EngineLimits,
    GenerateRequest,
    check_request,
    check_stop_words,
)
from tts.engines.prefix_cache import prefix_hashes
from tts.engines.request_tensors import REQUIRED, is_stop, parse_request, rows_of
from tts.engines.responses import (
    Response,
    failure_of,
    response_tensors,
    row_tensors,
    unavailable,
)

GENERATOR = EngineLimits(
    vocab_size=100, max_seq_len=64, max_num_tokens=32, block_size=32, blocks=8, max_active=4
)
UNCHUNKED = replace(GENERATOR, chunked_context=False)
SMALL = replace(GENERATOR, max_seq_len=640, blocks=2)
GUIDED = replace(GENERATOR, guided_end_id=7)
VERIFIER = replace(GENERATOR, max_num_tokens=64, labels=2, writes=False, decoupled=False)


def tensors(prompt=(1, 2, 3), output=5, **scalars):
    given_tensors = {
        "input_ids": np.array([prompt], dtype=np.int32),
        "input_lengths": wire.scalar("input_lengths", len(prompt)),
        "request_output_len": wire.scalar("request_output_len", output),
    }
    for name, value in scalars.items():
        plain = value is None or isinstance(value, np.ndarray)
        given_tensors[name] = value if plain else wire.scalar(name, value)
    return given_tensors


def words(*rows):
    return np.array([rows], dtype=np.int32)


def test_defaults():
    request = parse_request(tensors(), GENERATOR)
    assert request.input_ids.tolist() == [1, 2, 3]
    assert request.input_ids.dtype == np.int64
    assert (request.max_new_tokens, request.end_id, request.stop_words) == (5, None, ())
    assert request.seed == 0
    assert request.greedy


def test_every_field_arrives():
    request = parse_request(
        tensors(
            end_id=7,
            stop_words_list=words([5, 6, 9], [2, 3, -1]),
            temperature=0.5,
            runtime_top_p=0.25,
            runtime_top_k=40,
            seed=2**64 - 1,
            return_log_probs=True,
            streaming=True,
            exclude_input_in_output=False,
            pad_id=3,
        ),
        GENERATOR,
    )
    assert request.stop_words == ((5, 6), (9,))
    assert (request.end_id, request.temperature, request.top_p) == (7, 0.5, 0.25)
    assert (request.top_k, request.seed) == (40, 2**64 - 1)
    assert request.return_log_probs
    assert request.streaming
    assert not request.exclude_input
    assert not request.greedy


@pytest.mark.parametrize(
    ("sampling", "greedy"),
    [
        ({}, True),
        ({"temperature": 0.7}, True),
        ({"runtime_top_k": 0, "runtime_top_p": 0.0}, True),
        ({"runtime_top_k": 1, "runtime_top_p": 1.0}, True),
        ({"runtime_top_p": 1.0, "temperature": 0.0}, True),
        ({"runtime_top_p": 1.0}, False),
        ({"runtime_top_k": 2}, False),
    ],
)
def test_sampling_needs_top_k_or_top_p(sampling, greedy):
    assert parse_request(tensors(**sampling), GENERATOR).greedy is greedy


def test_the_output_is_clamped_to_the_sequence_length():
    assert parse_request(tensors(prompt=[1] * 60, output=999), GENERATOR).max_new_tokens == 4


def test_the_longest_prompt_depends_on_chunked_context():
    for limits, longest in ((GENERATOR, 63), (UNCHUNKED, 32)):
        parse_request(tensors(prompt=[1] * longest), limits)
        reason = f"{longest + 1} tokens; the longest admissible prompt is {longest}"
        with pytest.raises(RequestError, match=reason):
            parse_request(tensors(prompt=[1] * (longest + 1)), limits)


def guided(kind=b"json_schema", text=b"{}", **others):
    """The tensors of a guide."""
    given_tensors = {"guided_decoding_guide_type": kind, "guided_decoding_guide": text}
    return others | {
        name: np.array([[value]], dtype=object)
        for name, value in given_tensors.items()
        if value is not None
    }


INT64 = np.array([[1, 2, 3]], dtype=np.int64)
BAD = {
    "unknown tensor": ({"lora_task_id": INT64}, "lora_task_id is not supported"),
    "wrong dtype": ({"input_ids": INT64}, "input_ids must be INT32"),
    "id of 64 bits": ({"input_ids": INT64 + 7 * 2**32}, "input_ids must be INT32"),
    "ids as unsigned": ({"input_ids": words(1, 2, 3).view(np.uint32)}, "input_ids must be INT32"),
    "stop words of 64 bits": ({"stop_words_list": INT64[None] + 2**32}, "must be INT32"),
    "wrong rank": ({"input_ids": np.array([1, 2, 3], dtype=np.int32)}, r"must be \[1, N\]"),
    "batch": ({"input_ids": np.ones((2, 3), dtype=np.int32)}, "one request per prompt"),
    "batch of scalars": ({"seed": np.ones((2, 1), dtype=np.uint64)}, "one request per prompt"),
    "empty prompt": ({"input_ids": np.ones((1, 0), dtype=np.int32)}, "empty"),
    "length disagrees": ({"input_lengths": 4}, "input_lengths is 4 but input_ids has 3"),
    "negative id": ({"input_ids": words(1, -2, 3)}, "the id -2"),
    "id too large": ({"input_ids": words(1, 100, 3)}, "the id 100"),
    "no output": ({"request_output_len": 0}, "request_output_len is 0"),
    "negative output": ({"request_output_len": -3}, "request_output_len is -3"),
    "NaN temperature": ({"temperature": float("nan")}, "temperature is nan"),
    "infinite temperature": ({"temperature": float("inf")}, "temperature is inf"),
    "negative temperature": ({"temperature": -1.0}, "temperature is -1.0"),
    "top_p above 1": ({"runtime_top_p": 1.5}, "runtime_top_p is 1.5"),
    "top_p negative": ({"runtime_top_p": -0.5}, "runtime_top_p is -0.5"),
    "top_p NaN": ({"runtime_top_p": float("nan")}, "runtime_top_p is nan"),
    "top_k negative": ({"runtime_top_k": -1}, "runtime_top_k is -1"),
    "top_k too large": ({"runtime_top_k": 1025}, "runtime_top_k is 1025"),
    "end_id": ({"end_id": 100}, "end_id is 100"),
    "end_id negative": ({"end_id": -2}, "end_id is -2"),
    "stop word id": ({"stop_words_list": words([100], [1])}, "outside the vocabulary"),
    "stop word layout": ({"stop_words_list": words([1], [0])}, "offset 0"),
    "logits of a generator": ({"return_generation_logits": True}, "gathers generation logits"),
    "seed type": ({"seed": np.array([[1]], dtype=np.int64)}, "seed must be UINT64"),
    **{f"no {name}": ({name: None}, f"{name} is required") for name in REQUIRED},
    "min_p": ({"min_p": 1.5}, "min_p is 1.5"),
    "too many stop words": (
        {"stop_words_list": np.ones((1, 2, 65_537), np.int32)},
        "at most 65536",
    ),
}
BAD_GUIDES = {
    "text alone": (guided(kind=None), "go together"),
    "kind alone": (guided(text=None), "go together"),
    "unknown kind": (guided(b"regex"), "guided_decoding_guide_type is 'regex'"),
    "no grammar": (guided(b"ebnf_grammar", b"x"), "guided_decoding_guide is not a grammar"),
    "no JSON": (guided(text=b"{"), "guided_decoding_guide is not a JSON schema"),
    "no object": (guided(text=b"[]"), "it must be an object"),
    "deep": (guided(text=b"[" * 100_000), "guided_decoding_guide is not a JSON schema"),
    "long": (guided(text=b"{}" + b" " * 2**18), "has 262146 bytes; at most 262144"),
    "no UTF-8": (guided(text=b"{\xff}"), "guided_decoding_guide is not UTF-8 at byte 1"),
    "no end id": (guided(), "end_id is -1; with a guide it must be 7"),
    "another end id": (guided(end_id=8), "end_id is 8; with a guide it must be 7"),
}


@pytest.mark.parametrize(
    ("limits", "change", "reason"),
    [
        *(pytest.param(GENERATOR, *each, id=case) for case, each in BAD.items()),
        *(pytest.param(GUIDED, *each, id=case) for case, each in BAD_GUIDES.items()),
        (GENERATOR, guided(end_id=7), "needs generator.guided_decoding in the deployment"),
        (SMALL, {"output": 600}, "the whole pool has 2"),
        (VERIFIER, {"output": 1, "streaming": True}, "decoupled"),
        (VERIFIER, {"output": 2}, "send 1"),
        (VERIFIER, {"output": 1, "runtime_top_k": 5}, "likeliest label"),
        (VERIFIER, {"output": 1, "end_id": 1}, "likeliest label"),
        (VERIFIER, {"output": 1, "stop_words_list": words([1], [1])}, "likeliest label"),
    ],
)
def test_each_bad_request_is_refused_by_name(limits, change, reason):
    given_tensors = {name: each for name, each in tensors(**change).items() if each is not None}
    with pytest.raises(RequestError, match=reason):
        parse_request(given_tensors, limits)


def test_a_guide_arrives():
    request = parse_request(tensors(**guided(end_id=7)), GUIDED)
    assert request.guide == wire.Guide(wire.JSON_SCHEMA, "{}")


def test_the_greatest_and_the_least_of_each_number_are_accepted():
    for sign, bounds in (
        (1, {"min_p": 1.0, "runtime_top_p": 1.0, "runtime_top_k": 1024, "end_id": 99, "seed": 0}),
        (-1, {"min_p": 0.0, "temperature": 0.0, "end_id": 0, "min_tokens": 0, "output": 1}),
    ):
        penalties = {"presence_penalty": 2.0 * sign, "frequency_penalty": 2.0 * sign}
        parse_request(tensors(**bounds, **penalties), GENERATOR)
    parse_request(tensors(repetition_penalty=10.0, min_tokens=5), GENERATOR)


@pytest.mark.parametrize("id_", [100, -1, 2**32 + 5, 7 * 2**32 + 5])
def test_ids_of_a_request_made_here_are_checked_in_all_their_bits(id_):
    with pytest.raises(RequestError, match=f"the id {id_};"):
        check_request(GenerateRequest(np.array([1, id_], np.int64), 1), GENERATOR)


@pytest.mark.parametrize(
    ("stop_words", "reason"),
    [
        (((99, 0), (5,)), None),
        (((5,), ()), "without a token"),
        (((5,), (100,)), "outside the vocabulary"),
        (((-1,),), "outside the vocabulary"),
        (((5,) * 65_537,), "at most 65536"),
    ],
)
def test_stop_words_of_a_request_made_here_are_checked(stop_words, reason):
    with pytest.raises(RequestError, match=reason) if reason else nullcontext():
        check_stop_words(stop_words, GENERATOR)


@given(
    st.dictionaries(
        st.sampled_from(sorted(wire.INPUTS)),
        hnp.arrays(
            st.sampled_from([np.int32, np.int64, np.float32, np.bool_, np.uint64]),
            hnp.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=4),
        ),
    )
)
def test_any_tensors_give_a_request_or_a_sentence(changes):
    try:
        request = parse_request({**tensors(), **changes}, GENERATOR)
    except RequestError as error:
        reason = error.message
    else:
        reason = "none needed"
        assert request.max_new_tokens >= 1
        assert request.tokens <= GENERATOR.max_seq_len
    assert reason.strip()


def outcome(tensors):
    """A request as text, or why it is none."""
    try:
        return repr(parse_request(tensors, GENERATOR))
    except RequestError as error:
        return error.message


@given(
    st.lists(
        st.tuples(
            st.lists(st.integers(-1, 101), min_size=1, max_size=70),
            st.integers(-1, 70),  # tokens
            st.floats(-1, 2, width=32),
            st.integers(0, 2**64 - 1),  # seed
        ),
        min_size=1,
        max_size=6,
    )
)
def test_rows_of_a_request_are_what_each_would_be_by_itself(rows):
    words = wire.encode_stop_words([[3], [4, 5]])[None]
    alone = [
        tensors(prompt, length, temperature=float(t), seed=seed, stop_words_list=words)
        for prompt, length, t, seed in rows
    ]
    together = {
        name: np.concatenate([each[name] for each in alone])
        for name in alone[0]
        if name != "input_ids"
    }
    longest = max(len(prompt) for prompt, *_ in rows)
    padded = [[*prompt, *[0] * (longest - len(prompt))] for prompt, *_ in rows]
    together["input_ids"] = np.array(padded, dtype=np.int32)
    assert [outcome(row) for row in rows_of(together)] == [outcome(each) for each in alone]
    squeezed = {
        name: each[:, 0] if each.shape[1:] == (1,) else each for name, each in together.items()
    }
    if longest > 1:  # scalars as Triton hands them over
        assert [outcome(row) for row in rows_of(squeezed)] == [outcome(each) for each in alone]


@pytest.mark.parametrize("length", [-1, 4, 2**31 - 1])
def test_a_row_whose_length_cannot_be_is_refused_alone(length):
    two = {name: np.concatenate([each, each]) for name, each in tensors().items()}
    two["input_lengths"][1] = length
    first, second = rows_of(two)
    assert parse_request(first, GENERATOR).input_ids.tolist() == [1, 2, 3]
    assert f"input_lengths is {length}" in outcome(second)


def test_tensors_of_different_numbers_of_rows_are_refused():
    with pytest.raises(RequestError, match="differ in their number of rows"):
        rows_of(tensors(end_id=np.ones((2, 1), np.int32)))


def test_rows_are_answered_together_with_the_errors_of_some():
    answers = [[7, 8], "[refused] no", [], [9]]
    request = GenerateRequest(PROMPT, 2)
    rows = [
        (
            number,
            ids
            if isinstance(ids, str)
            else response_tensors(request, Response(ids, finish_reason="stop")),
        )
        for number, ids in enumerate(answers, 5)
    ]
    out = row_tensors(rows)
    assert out["batch_index"].tolist() == [[5], [6], [7], [8]]
    assert out["output_ids"].tolist() == [[[7, 8]], [[0, 0]], [[0, 0]], [[9, 0]]]
    assert out["sequence_length"].tolist() == [[2], [0], [0], [1]]
    assert out["error"].tolist() == [[b""], [b"[refused] no"], [b""], [b""]]
    assert row_tensors(rows[1:2]).keys() == {"batch_index", "error"}
    assert "error" not in row_tensors(rows[:1])


def test_a_stop_request_is_recognised():
    assert is_stop(tensors(stop=True))
    assert not is_stop(tensors(stop=False))
    assert not is_stop(tensors())


PROMPT = np.array([1, 2], dtype=np.int64)


@pytest.mark.parametrize(
    ("fields", "ids"),
    [
        ({}, [7, 8]),
        ({"exclude_input": False}, [1, 2, 7, 8]),
        ({"exclude_input": False, "streaming": True}, [7, 8]),
    ],
)
def test_output_tensors_without_and_with_the_prompt(fields, ids):
    out = response_tensors(GenerateRequest(PROMPT, 2, **fields), Response([7, 8]))
    assert out.keys() == {"output_ids", "sequence_length"}
    assert out["output_ids"].tolist() == [[ids]]
    assert out["sequence_length"].tolist() == [[len(ids)]]


def test_log_probs_and_logits_have_their_shapes():
    request = GenerateRequest(PROMPT, 2, return_log_probs=True)
    out = response_tensors(request, Response([7, 8], log_probs=[-1.0, -0.5]))
    assert out["output_log_probs"].tolist() == [[[-1.0, -0.5]]]
    assert out["cum_log_probs"].tolist() == [[-1.5]]
    out = response_tensors(request, Response([], log_probs=[]))
    assert out["output_log_probs"].shape == (1, 1, 0)
    assert out["cum_log_probs"].tolist() == [[0.0]]
    logits = Response([1], label_logits=(-0.1, -2.0), finish_reason="length")
    out = response_tensors(GenerateRequest(PROMPT, 1), logits)
    assert out["generation_logits"].shape == (1, 1, 1, 2)


@pytest.mark.parametrize(
    ("response", "failure"),
    [
        (Response([7], finish_reason="stop"), None),
        (Response([]), None),
        (Response([7], finish_reason="cancelled"), wire.Failure.CANCELLED),
        (Response([], error="too long"), wire.Failure.REFUSED),
        (unavailable("the engine has died"), wire.Failure.UNAVAILABLE),
    ],
)
def test_a_response_without_an_answer_says_what_kind_of_failure_it_is(response, failure):
    assert (failure_of(response) or (None,))[0] == failure
    assert response.final == (failure is not None or response.finish_reason is not None)


@pytest.mark.parametrize(
    ("stop_words", "last"), [([], "語"), ([[7]] * 5000, "a"), ([list(range(1, 100))] * 50, "é")]
)
def test_a_request_that_waits_takes_no_more_memory_than_it_says(stop_words, last):
    limits = EngineLimits(10**6, 10**6, 512, 32, 10**6, 4, guided_end_id=1)
    guide = '{"title": "' + "a" * 200_000 + last + '"}'
    given_tensors = tensors(
        prompt=range(300_000, 310_000),
        stop_words_list=wire.encode_stop_words(stop_words)[None],
        **guided(text=guide.encode(), end_id=1),
    )
    prefix_hashes(np.ones(20_000, np.int64))  # what all prompts share is made once
    tracemalloc.start()
    try:
        request = parse_request(given_tensors, limits)
        hashes = prefix_hashes(request.input_ids)
        held, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert request.guide == wire.Guide(wire.JSON_SCHEMA, guide)
    assert len(hashes) == 10_000
    assert held / 2 < request.bytes_waiting > held * 0.9


def test_stop_words_that_many_clients_once_sent_do_not_stay_in_memory():
    def held_after(lists):
        tracemalloc.start()
        try:
            for number in range(lists):
                wire.decode_stop_words(wire.encode_stop_words([[1000 + number]] * 2000))
            return tracemalloc.get_traced_memory()[0]
        finally:
            tracemalloc.stop()
            wire._decode.cache_clear()

    assert held_after(100) < 2 * held_after(8)


@pytest.mark.parametrize(
    ("name", "neutral", "other"),
    [
        ("beam_width", 1, 2),
        ("num_return_sequences", 1, 2),
        ("return_context_logits", False, True),
        ("return_perf_metrics", False, True),
        ("min_tokens", 0, -1),
        ("repetition_penalty", 1.0, 0.0),
        ("presence_penalty", 0.0, 2.1),
        ("frequency_penalty", 0.0, -2.1),
        ("bad_words_list", words([0], [-1]), words([1], [1])),
        ("embedding_bias", np.zeros((1, 0), np.float32), np.zeros((1, 100), np.float32)),
    ],
)
def test_what_a_tensorrt_llm_client_sends_by_default_is_accepted(name, neutral, other):
    plain = parse_request(tensors(), GENERATOR)
    stated = parse_request(tensors(**{name: neutral}), GENERATOR)
    assert structs.replace(stated, input_ids=plain.input_ids) == plain
    with pytest.raises(RequestError, match=name):
        parse_request(tensors(**{name: other}), GENERATOR)
