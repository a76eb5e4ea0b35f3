"""What servers are sent and what their answers mean."""

import contextlib
import copy
import json
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.endpoints.openai.stand_in import recording

from tts.base.errors import EndpointError, EndpointUnavailable
from tts.endpoints.openai import answers
from tts.endpoints.openai.dialects import (
    DIALECTS,
    LLAMA,
    SGLANG,
    TRTLLM,
    VLLM,
    Ask,
    log_probs_of,
)
from tts.engines.wire import EBNF, JSON_SCHEMA, Guide

RECORDED = {"vllm": VLLM, "llama": LLAMA}
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3)
    ),
    max_leaves=10,
)
SGLANG_ANSWER = {  # by its documentation: /generate with return_logprob and token_ids_logprob
    "text": " Paris",
    "output_ids": [12095, 13],
    "meta_info": {
        "finish_reason": {"type": "length", "length": 2},
        "prompt_tokens": 3,
        "completion_tokens": 2,
        "output_token_logprobs": [[-0.25, 12095, None], [-1.5, 13, None]],
        "output_token_ids_logprobs": [[[-0.25, 14, None], [-1.25, 15, None]]],
        "output_top_logprobs": [[[-0.25, 12095, None], [-1.75, 7, None]], [[-0.1, 8, None]]],
        "input_token_logprobs": [[None, 10, None], [-2.0, 11, None], [-3.0, 12, None]],
    },
}


def said(kind, name):
    return recording(kind)[name]["answer"]


@pytest.mark.parametrize("kind", RECORDED)
def test_the_requests_are_those_that_were_recorded(kind):
    dialect, bodies = RECORDED[kind], recording(kind)
    ask = Ask([10, 11, 12, 13], 4, seed=7, temperature=1.0)
    assert dialect.sample("smollm2", ask) == bodies["sample"]["body"]
    assert dialect.labels.body("smollm2", [10, 11, 12, 13], (14, 15)) == bodies["labels"]["body"]


@pytest.mark.parametrize(
    ("kind", "name", "ids", "text", "end"),
    [
        ("vllm", "sample", [29, 83, 679, 308], "-cathol", "length"),
        ("vllm", "stop", None, "-cathol's e", "stop"),
        ("llama", "sample", [29, 1141, 29, 1425], "-to-be", "limit"),
        # the token of the stop text is there
        ("llama", "stop", [29, 1141, 29, 1425], "-to-b", "word"),
    ],
)
def test_samples_that_were_answered(kind, name, ids, text, end):
    piece = RECORDED[kind].piece(said(kind, name))
    assert (piece.text, piece.end) == (text, end)
    assert ids in (None, piece.ids)
    piece = RECORDED[kind].piece(said(kind, "log_probs"))
    assert len(piece.log_probs) == len(piece.ids) == 4


def share(found, labels):
    return answers.mean_weight(log_probs_of(found, labels, ("", "")), (1, 0))


def test_labels_that_were_answered():
    found = VLLM.labels.read(said("vllm", "labels"))
    assert share(found, (14, 15)) == pytest.approx(0.5)
    found = LLAMA.labels.read(said("llama", "labels"))
    assert share(found, (14, 15)) == pytest.approx(0.49987030)
    assert log_probs_of({7: -1.0, " no": -2.0}, (7, 8), (" yes", " no")) == [-1, -2]
    assert log_probs_of({7: -1.0}, (7, 8), (" yes", " no")) == [-1, None]


def test_a_prompt_that_was_answered():
    rows = VLLM.prompts.read(said("vllm", "prompt"), [10, 11, 12, 13])
    own = [row[token] for token, row in zip([11, 12, 13], rows, strict=True)]
    assert own == pytest.approx([-21.3155, -21.1852, -21.1348], abs=1e-3)
    with pytest.raises(EndpointError, match="where token 9 should be"):
        VLLM.prompts.read(said("vllm", "prompt"), [10, 9, 12, 13])


def test_an_answer_of_sglang_by_its_documentation():
    piece = SGLANG.piece(SGLANG_ANSWER)
    assert (piece.ids, piece.end, piece.so_far) == ([12095, 13], "length", 2)
    assert piece.log_probs == [-0.25, -1.5]
    assert piece.top == [{12095: -0.25, 7: -1.75}, {8: -0.1}]
    found = SGLANG.labels.read(SGLANG_ANSWER)
    assert share(found, (14, 15)) == pytest.approx(1 / (1 + math.exp(-1)))
    assert SGLANG.prompts.read(SGLANG_ANSWER, [10, 11, 12]) == [{11: -2.0}, {12: -3.0}]
    more = copy.deepcopy(SGLANG_ANSWER)
    more["meta_info"]["input_top_logprobs"] = [None, [[-0.5, 7, None]], [[-3.0, 12, None]]]
    assert SGLANG.prompts.read(more, [10, 11, 12]) == [{7: -0.5, 11: -2.0}, {12: -3.0}]
    aborted = copy.deepcopy(SGLANG_ANSWER)
    aborted["meta_info"]["finish_reason"] = {"type": "abort", "message": "out of memory"}
    with pytest.raises(EndpointUnavailable, match="out of memory"):
        SGLANG.piece(aborted)


GUIDES = Guide(EBNF, "root ::= []"), Guide(JSON_SCHEMA, '{"type": "null"}')


@pytest.mark.parametrize("guide", GUIDES)
def test_a_guide_is_spelled_as_each_server_reads_it(guide):
    ask, grammar = Ask([1], 5, guide=guide), guide.kind == EBNF
    said = guide.text if grammar else json.loads(guide.text)
    name = "grammar" if grammar else "json_schema"
    sampling = SGLANG.sample("m", ask)["sampling_params"]
    assert sampling["ebnf" if grammar else "json_schema"] == guide.text
    assert LLAMA.sample("m", ask)[name] == said
    outputs = VLLM.sample("m", ask)["structured_outputs"]
    assert outputs == {"grammar" if grammar else "json": said}
    form = {"type": "ebnf", "ebnf": said} if grammar else {"type": "json", "schema": said}
    assert TRTLLM.sample("m", ask)["response_format"] == form


def test_a_sample_is_spelled_as_each_server_reads_it():
    ask = Ask([1], 5, 3, 0.5, 0.9, 4, ("\n\n",), (2,), False, None, True, True)
    sampling = SGLANG.sample("m", ask)["sampling_params"]
    assert (sampling["max_new_tokens"], sampling["top_k"]) == (5, 4)
    assert sampling["no_stop_trim"]
    assert SGLANG.sample("m", Ask([1], 5))["sampling_params"]["top_k"] == -1
    body = TRTLLM.sample("m", ask)
    assert (body["detokenize"], body["include_stop_str_in_output"]) == (False, True)
    likeliest = Ask([1], 5, log_probs=True, top=3)
    assert SGLANG.sample("m", likeliest)["top_logprobs_num"] == 3
    body = VLLM.sample("m", likeliest)
    assert (body["logprobs"], body["return_tokens_as_token_ids"]) == (3, True)


READERS = [
    *(each.piece for each in DIALECTS.values()),
    *(each.labels.read for each in DIALECTS.values()),
    *(
        lambda answer, each=each: each.prompts.read(answer, [10, 11, 12, 13])
        for each in DIALECTS.values()
        if each.prompts
    ),
]


@given(JSON, st.sampled_from(READERS))
def test_any_answer_is_read_or_is_a_sentence(answer, read):
    with contextlib.suppress(EndpointError):
        read(answer)


@given(st.data(), JSON)
def test_any_value_in_an_answer_is_read_or_is_a_sentence(data, value):
    kind = data.draw(st.sampled_from(sorted(RECORDED)))
    names = [name for name, each in recording(kind).items() if isinstance(each["answer"], dict)]
    answer = copy.deepcopy(data.draw(st.sampled_from([said(kind, n) for n in names])))
    place = answer
    while True:
        key = data.draw(
            st.sampled_from(list(place))
            if isinstance(place, dict)
            else st.integers(0, len(place) - 1)
        )
        if not (isinstance(place[key], dict | list) and place[key]) or data.draw(st.booleans()):
            place[key] = value
            break
        place = place[key]
    with contextlib.suppress(EndpointError):
        data.draw(st.sampled_from(READERS))(answer)


@given(st.lists(st.tuples(st.floats(-1e30, 0), st.floats(0, 1)), min_size=2))
def test_a_mean_weight_lies_among_the_weights_and_turns_with_them(labels):
    log_probs, weights = zip(*labels, strict=True)
    score = answers.mean_weight(log_probs, weights)
    assert min(weights) - 1e-9 <= score <= max(weights) + 1e-9
    turned = answers.mean_weight(log_probs, [1 - each for each in weights])
    assert score + turned == pytest.approx(1)
