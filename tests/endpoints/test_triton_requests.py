"""Requests encoded by hand are those that protobuf would encode."""

import asyncio

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tritonclient.grpc import service_pb2

from tts.base.errors import RequestRefused
from tts.endpoints.base import GenerateCall, ScoreCall
from tts.endpoints.shaping import Shaping
from tts.endpoints.streaming import NewTokens, OutputEnds
from tts.endpoints.triton import TritonGenerator, TritonVerifier
from tts.endpoints.triton_requests import Constant, RequestRow, RequestTemplate, score_template
from tts.engines import wire

SCALARS = {
    "request_output_len": st.integers(-(2**31), 2**31 - 1),
    "seed": st.integers(0, 2**64 - 1),
    "temperature": st.floats(width=32),
    "return_log_probs": st.booleans(),
}
IDS = st.lists(st.integers(0, 2**31 - 1), max_size=300)


def by_protobuf(model, number, tensors, outputs, first=None):
    """`tensors` are (name, shape, raw content)."""
    request = service_pb2.ModelInferRequest(model_name=model, id=number)
    if first is not None:
        request.parameters[wire.FIRST_ROW].int64_param = first
    for name, shape, raw in tensors:
        request.inputs.add(name=name, datatype=wire.INPUTS[name], shape=shape)
        request.raw_input_contents.append(raw)
    for name in outputs:
        request.outputs.add(name=name)
    return request.SerializeToString()


def test_ids_are_never_cut_to_32_bits():
    wide = np.array([2**32 + 5])
    template = RequestTemplate("m", scalars=[], constants=[], outputs=[])
    with pytest.raises(TypeError, match="int64"):
        RequestRow(template, wide, []).encode("1")
    with pytest.raises(TypeError, match="int64"):
        template.encode("c-1+", [RequestRow(template, wide, [])] * 2, 1)


@given(st.data())
def test_a_template_encodes_as_protobuf_does(data):
    """One row alone, or several that are numbered."""
    model = data.draw(st.text(min_size=1, max_size=200))
    number = data.draw(st.text(max_size=200))
    numbered = st.tuples(st.integers(1, 5), st.integers(1, 2**30))
    count, first = data.draw(st.just((1, None)) | numbered)
    names = data.draw(st.lists(st.sampled_from(sorted(SCALARS)), max_size=6))
    texts = data.draw(st.integers(0, 2))
    constants = data.draw(
        st.lists(
            st.builds(
                Constant,
                st.sampled_from(sorted(wire.INPUTS)),
                st.binary(max_size=300),
                st.lists(st.integers(0, 2**40), min_size=1, max_size=3).map(tuple),
            ),
            max_size=3,
        )
    )
    outputs = data.draw(st.lists(st.text(min_size=1, max_size=20), max_size=3))
    template = RequestTemplate(
        model,
        scalars=names,
        constants=constants,
        texts=["guided_decoding_guide"] * texts,
        outputs=outputs,
    )
    rows = [
        RequestRow(
            template,
            np.asarray(data.draw(IDS), dtype=np.int32),
            [data.draw(SCALARS[name]) for name in names],
            [data.draw(st.text(max_size=200)) for _ in range(texts)],
        )
        for _ in range(count)
    ]
    padded = np.zeros((count, max(len(row.ids) for row in rows)), np.int32)
    for line, row in zip(padded, rows, strict=True):
        line[: len(row.ids)] = row.ids
    tensors = [("input_ids", padded.shape, padded.tobytes())]
    for place, name in enumerate(names):
        values = b"".join(wire.scalar(name, row.scalars[place]).tobytes() for row in rows)
        tensors.append((name, (count, 1), values))
    tensors += ((each.name, (count, *each.shape), each.raw * count) for each in constants)
    for place in range(texts):
        raw = b"".join(wire.encode_text(row.texts[place]) for row in rows)
        tensors.append(("guided_decoding_guide", (count, 1), raw))
    outputs += [] if first is None else ["batch_index", "error"]
    expected = by_protobuf(model, number, tensors, outputs, first)
    assert template.encode(number, rows, first) == expected


class Connection:
    """Keeps what was sent, and answers nothing of use."""

    def __init__(self, host=False):
        self.host = host

    async def score(self, row):
        self.sent = row.encode("")
        return 0.25

    async def sample(self, row):
        self.sent = row.encode("7")
        return NewTokens([5, 6], final=True)

    async def stream(self, row, on_rest=None):
        self.sent = row.encode("7")
        yield NewTokens([5, 6], final=True)


@given(
    ids=IDS,
    tokens=st.integers(1, 10**6),
    seed=st.integers(0, 2**63 - 1),
    temperature=st.just(0.0) | st.floats(0.125, 2, width=32),
    top_p=st.floats(0, 1, width=32),
    top_k=st.integers(0, 100),
    stop=st.booleans(),
    words=st.sampled_from([(), ((6,), (7, 7))]),
    ignore_end=st.booleans(),
    guide=st.none() | st.builds(wire.Guide, st.just(wire.EBNF), st.text(max_size=30)),
    shaping=st.fixed_dictionaries(
        {},
        optional={
            "min_tokens": st.integers(1, 9),
            "repetition_penalty": st.floats(1.5, 2, width=32),
            "presence_penalty": st.floats(0.5, 2, width=32),
            "frequency_penalty": st.floats(-2, -0.5, width=32),
        },
    ),
    flags=st.none() | st.tuples(st.booleans(), st.booleans()),
)
def test_a_sample_is_asked_for_by_the_tensors_of_the_contract(
    ids, tokens, seed, temperature, top_p, top_k, stop, words, ignore_end, guide, shaping, flags
):
    """`flags`: its tokens are asked for as they come, maybe one by one, with log-probabilities."""
    connection = Connection()
    generator = TritonGenerator(connection, "generator", OutputEnds(2, ((3, 4), (9,)), ((8,),)))
    call = GenerateCall(
        np.int32(ids),
        tokens,
        seed,
        temperature,
        top_p,
        stop,
        guide,
        top_k=top_k,
        stop_words=words,
        ignore_end=ignore_end,
        shaping=Shaping(**shaping) if shaping else None,
    )
    if flags is None:
        assert asyncio.run(generator.generate(call)) == [5, 6]
    else:
        call.streaming, call.log_probs = flags
        assert asyncio.run(streamed(generator, call)) == [5, 6]
    scalars = {"input_lengths": len(ids), "request_output_len": tokens}
    if temperature:
        scalars |= {"temperature": temperature, "runtime_top_p": top_p, "seed": seed}
        scalars |= {"runtime_top_k": top_k} if top_k else {}
    end_id = {"end_id": wire.NO_END_ID if ignore_end else 2}
    if flags is None:
        scalars |= {**end_id, "exclude_input_in_output": True}
    else:
        scalars |= {"exclude_input_in_output": True, "streaming": flags[0]}
        scalars |= {"return_log_probs": flags[1], **end_id}
    order = ("min_tokens", "repetition_penalty", "presence_penalty", "frequency_penalty")
    scalars |= {name: shaping[name] for name in order if name in shaping}
    ends = [*words, *([] if ignore_end else [(8,)]), *([(3, 4), (9,)] if stop else [])]
    layout = wire.encode_stop_words(ends)
    tensors = [
        ("input_ids", (1, len(ids)), np.int32(ids).tobytes()),
        *((name, (1, 1), wire.scalar(name, value).tobytes()) for name, value in scalars.items()),
        *([("stop_words_list", (1, *layout.shape), layout.tobytes())] if ends else []),
    ]
    if guide is not None:
        tensors += [
            ("guided_decoding_guide_type", (1, 1), wire.encode_text(guide.kind)),
            ("guided_decoding_guide", (1, 1), wire.encode_text(guide.text)),
        ]
    outputs = [
        "output_ids",
        "sequence_length",
        *(["output_log_probs"] if flags and flags[1] else []),
    ]
    assert connection.sent == by_protobuf("generator", "7", tensors, outputs)


async def streamed(generator, call):
    return [token async for new in generator.stream(call) for token in new.ids]


@pytest.mark.parametrize(
    ("template", "model", "outputs"),
    [
        (score_template(), "prm", ["score"]),
        (
            score_template("generator", writes=True),
            "generator",
            ["output_ids", "sequence_length", "generation_logits"],
        ),
    ],
)
@given(ids=IDS)
def test_a_score_is_asked_for_by_the_tensors_of_the_contract(template, model, outputs, ids):
    connection = Connection()
    result = asyncio.run(TritonVerifier(connection, template).score(ScoreCall(np.int32(ids))))
    assert result.score == 0.25
    tensors = [
        ("input_ids", (1, len(ids)), np.int32(ids).tobytes()),
        ("input_lengths", (1, 1), wire.scalar("input_lengths", len(ids)).tobytes()),
        ("request_output_len", (1, 1), b"\1\0\0\0"),
        ("return_generation_logits", (1, 1), b"\1"),
    ]
    assert connection.sent == by_protobuf(model, "", tensors, outputs)


def test_the_engine_host_is_asked_for_least_probabilities_too():
    connection = Connection(host=True)
    generator = TritonGenerator(connection, "generator", OutputEnds(2))
    call = GenerateCall(np.int32([1]), 9, 5, 0.5, 1.0, False, shaping=Shaping(min_p=0.25))
    asyncio.run(streamed(generator, call))
    request = service_pb2.ModelInferRequest.FromString(connection.sent)
    raw = dict(zip((each.name for each in request.inputs), request.raw_input_contents, strict=True))
    assert raw["min_p"] == np.float32(0.25).tobytes()


@pytest.mark.parametrize(
    ("asked", "name"),
    [
        ({"shaping": Shaping(min_p=0.1)}, "min_p"),
        ({"shaping": Shaping(logit_bias=((1, 2.0),))}, "logit_bias"),
        ({"log_probs": True, "top_log_probs": 3}, "top_logprobs"),
    ],
)
def test_what_the_contract_has_not_is_refused_by_its_name(asked, name):
    generator = TritonGenerator(Connection(), "generator", OutputEnds(2))
    call = GenerateCall(np.int32([1]), 9, 5, 0.5, 1.0, False, **asked)
    with pytest.raises(RequestRefused, match=name):
        asyncio.run(generator.generate(call))
