"""A score is computed as the model `prm_score` computes it, bit by bit; what is drawn, as well."""

import asyncio
import importlib.util
import json
import sys
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import fields
from tritonclient.grpc import service_pb2

from tts.base import paths
from tts.base.errors import RequestError, RequestRefused, ServerError
from tts.endpoints import embedded
from tts.endpoints.base import GenerateCall
from tts.endpoints.embedded import EmbeddedConnection, EmbeddedEngine, EmbeddedGenerator
from tts.endpoints.streaming import OutputEnds
from tts.endpoints.triton import TritonGenerator
from tts.engines.generate_request import EngineLimits
from tts.engines.request_tensors import parse_request
from tts.engines.responses import first_probability
from tts.engines.wire import DTYPES

LIMITS = EngineLimits(
    vocab_size=100, max_seq_len=64, max_num_tokens=64, block_size=32, blocks=8, max_active=8
)
WORDS = ((7,), (8, 9))


@pytest.fixture(scope="module")
def prm_score():
    """What makes the model that Triton runs, on a stand-in for its backend's module."""

    class Tensor:
        def __init__(self, name, data):
            self.name, self.data = name, data

        def as_numpy(self):
            return self.data

    backend = SimpleNamespace(
        Tensor=Tensor,
        InferenceResponse=lambda output_tensors, error=None: {
            tensor.name: tensor.data for tensor in output_tensors
        },
        TritonError=str,
        get_input_tensor_by_name=lambda request, name: Tensor(name, request[name]),
    )
    file = paths.templates_dir() / "common" / "prm_score" / "1" / "model.py"
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(sys.modules, "triton_python_backend_utils", backend)
        spec = importlib.util.spec_from_file_location("prm_score_model", file)
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)

    def made(weights):
        parameters = {"label_ids": range(len(weights)), "label_weights": weights}
        given = {name: {"string_value": ",".join(map(str, v))} for name, v in parameters.items()}
        model = module.TritonPythonModel()
        model.initialize({"model_config": json.dumps({"parameters": given})})
        return model

    return made


async def test_an_engine_is_opened_again_until_it_has_died_three_times_without_an_answer(
    monkeypatch,
):
    class Client:
        @classmethod
        async def open(cls, opening, *, on_statistics, on_death):
            opened.append(on_death)
            return cls()

        def kill(self):
            pass

        async def aclose(self):
            pass

    opened = []
    monkeypatch.setattr(embedded, "EngineClient", Client)

    engine = EmbeddedEngine("generator", SimpleNamespace(limits=LIMITS))
    await engine.open()
    for deaths in (1, 2):
        opened[-1]("was killed", None)
        while len(opened) == deaths:
            await asyncio.sleep(0)
        engine.check()
    opened[-1]("was killed", None)
    with pytest.raises(ServerError, match="generator has died 3 times without an answer"):
        engine.check()
    await engine.aclose()
    assert len(opened) == 3


floats = st.floats(-60, 60, width=32)


@given(floats, floats)
def test_a_score_is_the_models_bit_by_bit(prm_score, positive, negative):
    logits = np.array([[[[positive, negative]]]], np.float32)
    (answer,) = prm_score((1.0, 0.0)).execute([{"generation_logits": logits}])
    assert first_probability([positive, negative]) == answer["score"].item()


@given(st.lists(st.tuples(floats, st.floats(0, 1, width=32)), min_size=2, max_size=20))
def test_a_graded_score_is_the_mean_weight_of_the_labels(prm_score, graded):
    logits, weights = (np.array(each, np.float32) for each in zip(*graded, strict=True))
    (answer,) = prm_score(weights.tolist()).execute(
        [{"generation_logits": logits[None, None, None]}]
    )
    shares = np.exp(logits - logits.max())
    assert answer["score"].item() == pytest.approx(weights @ shares / shares.sum(), abs=1e-6)
    assert answer["label_logits"].tolist() == [logits.tolist()]


@pytest.mark.parametrize("wrong", [float("nan"), float("inf"), float("-inf")])
def test_logits_that_are_no_numbers_are_no_score(wrong):
    with pytest.raises(RequestError, match="not finite"):
        first_probability([0.0, wrong])


calls = st.builds(
    GenerateCall,
    input_ids=st.lists(st.integers(0, 99), min_size=1, max_size=40).map(
        lambda ids: np.array(ids, np.int32)
    ),
    max_new_tokens=st.integers(1, 100),
    seed=st.integers(0, 2**64 - 1),
    temperature=st.just(0.0) | st.floats(0.01, 3),
    top_p=st.floats(0.01, 1),
    stop_at_step=st.booleans(),
    top_k=st.integers(0, 50),
    stop_words=st.sampled_from([(), ((3, 4),)]),
    ignore_end=st.booleans(),
)


@given(calls)
def test_the_engine_is_asked_what_it_would_be_asked_on_the_wire(call):
    """The request that Triton's model reads out of what TritonGenerator sends."""
    ends = OutputEnds(5, WORDS, ((1, 2),))
    triton = TritonGenerator(SimpleNamespace(host=True), "generator", ends)
    sent = service_pb2.ModelInferRequest.FromString(triton._row(call, None).encode("1"))
    tensors = {
        each.name: np.frombuffer(raw, DTYPES[each.datatype]).reshape(each.shape)
        for each, raw in zip(sent.inputs, sent.raw_input_contents, strict=True)
    }
    engine = EmbeddedEngine("generator", SimpleNamespace(limits=LIMITS))
    generator = EmbeddedConnection({"generator": engine}).generator(ends)
    ours, theirs = generator._request(call), parse_request(tensors, LIMITS)
    assert ours.input_ids.tolist() == theirs.input_ids.tolist()
    for name in {each.name for each in fields(ours)} - {"input_ids"}:
        assert getattr(ours, name) == getattr(theirs, name), name


def test_words_that_an_engine_does_not_take_are_refused_before_it_is_asked():
    engine = EmbeddedEngine("generator", SimpleNamespace(limits=LIMITS))
    generator = EmbeddedGenerator(engine, OutputEnds(5, WORDS))
    call = GenerateCall(np.array([1], np.int32), 4, 0, 0.0, 1.0, False, stop_words=((100,),))
    with pytest.raises(RequestRefused):
        generator._request(call)
