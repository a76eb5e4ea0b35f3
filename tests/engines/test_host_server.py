"""The engine host behind a real Triton server."""

import itertools
import time
import urllib.request
from collections.abc import Iterator

import grpc
import numpy as np
import pytest
from tritonclient.grpc import service_pb2, service_pb2_grpc

from tts.build.spec import Deployment
from tts.engines import wire
from tts.serving.server.start import RunningServer, start_server

pytestmark = pytest.mark.server

PROMPT = tuple(range(10, 40))
FINAL = "triton_final_response"


class Client:
    def __init__(self, server: RunningServer) -> None:
        self.metrics_url = f"http://{server.addresses.metrics}/metrics"
        self.channel = grpc.insecure_channel(server.addresses.grpc)
        self.stub = service_pb2_grpc.GRPCInferenceServiceStub(self.channel)

    def open(self, request):
        """Start one request on a stream of its own; returns the call, an iterator of answers."""
        return self.stub.ModelStreamInfer(iter([request]), timeout=20)

    def generate(self, **tensors) -> tuple[list[int], str]:
        """Tokens of the one response and its error, one of which is empty."""
        (answer,) = self.open(infer("generator", **tensors))
        if answer.error_message:
            return [], answer.error_message
        assert answer.infer_response.parameters[FINAL].bool_param
        return outputs(answer.infer_response)["output_ids"].ravel().tolist(), ""

    def score(self, model="prm", **tensors):
        tensors = {"output": 1, "return_generation_logits": True, **tensors}
        return outputs(self.stub.ModelInfer(infer(model, **tensors), timeout=20))

    def gauges(self, model: str) -> dict[str, float]:
        """The nv_trt_llm_* gauges of a model by their label's value."""
        with urllib.request.urlopen(self.metrics_url, timeout=5) as answer:
            lines = answer.read().decode().splitlines()
        found = {}
        for line in lines:
            if line.startswith("nv_trt_llm_") and f'model="{model}"' in line:
                family, _, labels = line.partition("{")
                values = [part.split('"')[1] for part in labels.split(",")]
                (kind,) = (v for v in values if v not in (model, "1"))
                found[f"{family}/{kind}"] = float(line.rsplit(" ", 1)[1])
        return found

    def at_rest(self, model: str) -> bool:
        """Whether the gauges come to show, within two seconds, that the engine holds nothing."""
        deadline = time.monotonic() + 2
        while time.monotonic() < deadline:
            gauges = self.gauges(model)
            used = gauges["nv_trt_llm_kv_cache_block_metrics/used"]
            if gauges["nv_trt_llm_request_metrics/active"] == used == 0:
                return True
            time.sleep(0.05)
        return False


def infer(model, *, prompt=PROMPT, output=8, request_id="", names=(), empty_final=False, **tensors):
    """A ModelInferRequest; a tensor given as None is left out."""
    given = {
        "input_ids": np.array([prompt], dtype=np.int32),
        "input_lengths": wire.scalar("input_lengths", len(prompt)),
        "request_output_len": wire.scalar("request_output_len", output),
        **tensors,
    }
    request = service_pb2.ModelInferRequest(model_name=model, id=request_id)
    if empty_final:
        request.parameters["triton_enable_empty_final_response"].bool_param = True
    for name in names:
        request.outputs.add(name=name)
    kinds = {np.dtype(kind): name for name, kind in wire.DTYPES.items()}
    for name, value in given.items():
        if value is None:
            continue
        array = value if isinstance(value, np.ndarray) else wire.scalar(name, value)
        datatype = kinds.get(array.dtype, "INT64")
        request.inputs.add(name=name, datatype=datatype, shape=array.shape)
        request.raw_input_contents.append(array.tobytes())
    return request


def outputs(response) -> dict[str, np.ndarray]:
    return {
        output.name: np.frombuffer(raw, dtype=wire.DTYPES[output.datatype]).reshape(output.shape)
        for output, raw in zip(response.outputs, response.raw_output_contents, strict=True)
    }


@pytest.fixture(scope="module")
def server(pair: Deployment) -> Iterator[RunningServer]:
    with start_server(pair) as running:
        yield running


@pytest.fixture(scope="module")
def client(server: RunningServer) -> Iterator[Client]:
    client = Client(server)
    yield client
    client.channel.close()


def sampled(seed=1, **tensors):
    return {"runtime_top_p": 1.0, "seed": seed, **tensors}


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


def test_the_prompt_is_returned_on_demand(client):
    tokens, _ = client.generate(**sampled())
    with_prompt, _ = client.generate(**sampled(exclude_input_in_output=False))
    assert with_prompt == [*PROMPT, *tokens]


def test_a_stop_word_ends_the_output(client):
    tokens, _ = client.generate(**sampled(output=20))
    for word in (tokens[6:7], tokens[6:8]):
        table = wire.encode_stop_words([[1, 1, 1], word])[None]
        stopped, _ = client.generate(**sampled(output=20, stop_words_list=table))
        assert stopped == tokens[: len(stopped)]
        assert stopped[-len(word) :] == word


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
    "negative id": ({"prompt": (5, -1)}, "the id -1"),
    "prompt too long": ({"prompt": (5,) * 256}, "longest admissible prompt is 255"),
    "empty prompt": ({"prompt": ()}, "input_ids"),
    "length disagrees": ({"input_lengths": 3}, "input_lengths is 3"),
    "no output": ({"output": 0}, "request_output_len is 0"),
    "negative output": ({"output": -1}, "request_output_len is -1"),
    "NaN temperature": ({"temperature": float("nan")}, "temperature is nan"),
    "infinite temperature": ({"temperature": float("inf")}, "temperature is inf"),
    "negative temperature": ({"temperature": -1.0}, "temperature is -1.0"),
    "top_p": ({"runtime_top_p": 1.5}, "runtime_top_p is 1.5"),
    "top_k": ({"runtime_top_k": -1}, "runtime_top_k is -1"),
    "end_id": ({"end_id": 128}, "end_id is 128"),
    "empty stop word": ({"stop_words_list": np.array([[[7], [0]]], np.int32)}, "offset 0"),
    "stop words too short": ({"stop_words_list": np.array([[[7], [2]]], np.int32)}, "beyond"),
    "stop words rank": ({"stop_words_list": np.array([[7, 1]], np.int32)}, "stop_words_list"),
    "beams": ({"beam_width": 2}, "beam_width is 2"),
    "several answers": ({"num_return_sequences": 4}, "num_return_sequences is 4"),
    "penalty": ({"repetition_penalty": 2.0}, "repetition_penalty is 2.0"),
    "bad words": ({"bad_words_list": np.array([[[7], [1]]], np.int32)}, "bad_words_list is not"),
    "bias": ({"embedding_bias": np.ones((1, 128), np.float32)}, "embedding_bias is not"),
    "context logits": ({"return_context_logits": True}, "return_context_logits is True"),
    "generation logits": ({"return_generation_logits": True}, "gathers generation logits"),
    "wrong type": ({"input_ids": INT64}, "expects 'INT32'"),
    "wrong rank": ({"input_ids": INT64.astype(np.int32)[0]}, "input_ids"),
    "missing length": ({"input_lengths": None}, "input_lengths"),
    "missing prompt": ({"input_ids": None}, "input_ids is required"),
    "undeclared tensor": ({"names": ("nonsense",)}, "nonsense"),
    "outputs without length": ({"names": ("output_ids",)}, "sequence_length must be among"),
}


@pytest.mark.parametrize("case", BAD)
def test_a_bad_request_is_refused_and_the_next_one_works(client, case):
    change, reason = BAD[case]
    reference, _ = client.generate(**sampled())
    tokens, error = client.generate(**{**sampled(), **change})
    assert tokens == []
    assert reason in error
    assert client.generate(**sampled()) == (reference, "")


def test_a_batch_is_refused(client):
    two = {"input_ids": np.ones((2, 3), np.int32), "input_lengths": np.ones((2, 1), np.int32) * 3}
    tensors = {**two, "request_output_len": np.ones((2, 1), np.int32)}
    assert "one request per prompt" in client.generate(**tensors)[1]


def test_requests_in_flight_share_steps_and_keep_their_answers(client):
    alone = [client.generate(**sampled(seed, output=60))[0] for seed in range(12)]
    calls = [client.open(infer("generator", **sampled(seed, output=60))) for seed in range(12)]
    together = [outputs(answer.infer_response)["output_ids"] for call in calls for answer in call]
    assert [tokens.ravel().tolist() for tokens in together] == alone


def test_cancelling_the_stream_frees_slot_and_blocks(client):
    calls = [client.open(infer("generator", output=220, streaming=True)) for _ in range(8)]
    for call in calls:
        next(call)
        call.cancel()
    assert client.at_rest("generator")


def test_a_stop_request_ends_the_running_one(client):
    running = client.open(infer("generator", request_id="run", output=220, streaming=True))
    next(running)
    stop = infer("generator", request_id="run", stop=True, empty_final=True)
    (answer,) = client.open(stop)
    assert not answer.error_message
    assert not answer.infer_response.outputs
    *_, last = running
    assert last.infer_response.parameters[FINAL].bool_param
    assert client.at_rest("generator")


def test_a_stop_request_without_a_running_one_is_refused(client):
    assert "no running request has the id 'x'" in client.generate(request_id="x", stop=True)[1]
    assert "needs the request id" in client.generate(stop=True)[1]


def test_scores_are_those_of_torch(client, pair):
    torch = pytest.importorskip("torch")
    from transformers import LlamaForCausalLM

    model = LlamaForCausalLM.from_pretrained(pair.verifier.checkpoint).eval()
    random = np.random.default_rng(0)
    for length in (5, 64, 200):
        prompt = random.integers(5, 128, length)
        with torch.no_grad():
            logits = model(torch.tensor(prompt[None])).logits[0, -1, [3, 4]]
        out = client.score(prompt=prompt)
        assert out["score"].shape == (1, 1)
        assert out["score"].item() == pytest.approx(logits.softmax(-1)[0].item(), abs=1e-4)
        exponentials = np.exp(out["label_logits"].ravel())
        assert exponentials[0] / exponentials.sum() == pytest.approx(out["score"].item(), abs=1e-6)


def test_scores_in_flight_are_those_of_each_alone(client):
    prompts = [np.random.default_rng(n).integers(5, 128, 100) for n in range(24)]
    alone = [client.score(prompt=prompt)["score"].item() for prompt in prompts]
    tensors = {"output": 1, "return_generation_logits": True}
    calls = [client.stub.ModelInfer.future(infer("prm", prompt=p, **tensors)) for p in prompts]
    together = [outputs(call.result(timeout=20))["score"].item() for call in calls]
    assert together == pytest.approx(alone, abs=1e-5)


@pytest.mark.parametrize(
    ("model", "change", "reason"),
    [
        ("prm", {"prompt": (5,) * 256}, "longest admissible prompt is 255"),
        ("prm", {"prompt": (5, 999)}, "the id 999"),
        ("prm", {"output": 4}, "send 1"),
        ("prm", {"return_generation_logits": False}, "generation_logits"),
        ("prm_engine", {"streaming": True}, "decoupled"),
        ("prm_engine", {"stop": True}, "decoupled"),
        ("prm_engine", {"runtime_top_k": 5}, "likeliest label"),
    ],
)
def test_a_bad_score_request_is_refused_and_the_next_one_works(client, model, change, reason):
    with pytest.raises(grpc.RpcError) as refused:
        client.score(model, **change)
    assert refused.value.code() in (grpc.StatusCode.INVALID_ARGUMENT, grpc.StatusCode.INTERNAL)
    assert reason in refused.value.details()
    assert client.score()["score"].shape == (1, 1)


def test_the_verifier_comes_to_rest_after_cancelled_calls(client):
    tensors = {"prompt": (5,) * 200, "output": 1, "return_generation_logits": True}
    calls = [client.stub.ModelInfer.future(infer("prm", **tensors)) for _ in range(20)]
    for call in calls:
        call.cancel()
    assert client.at_rest("prm_engine")
    assert client.score()["score"].shape == (1, 1)


def test_the_metrics_have_the_names_of_tensorrt_llm(client):
    assert client.at_rest("generator")
    gauges = client.gauges("generator")
    for family, kinds in {
        "request": ("active", "max", "scheduled", "context", "waiting"),
        "kv_cache_block": ("max", "free", "used", "tokens_per", "fraction"),
        "inflight_batcher": ("total_context_tokens", "generation_requests", "paused_requests"),
        "general": ("timestamp", "iteration_counter"),
    }.items():
        for kind in kinds:
            assert f"nv_trt_llm_{family}_metrics/{kind}" in gauges
    assert gauges["nv_trt_llm_request_metrics/max"] == 8
    assert gauges["nv_trt_llm_kv_cache_block_metrics/max"] == 64
    assert gauges["nv_trt_llm_general_metrics/iteration_counter"] > 0


def test_the_token_lengths_are_counted(client):
    def counted() -> dict[tuple[str, str], float]:
        with urllib.request.urlopen(client.metrics_url, timeout=5) as answer:
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
    deadline = time.monotonic() + 10
    while after == before and time.monotonic() < deadline:
        after = settled()
    assert {key: value - before[key] for key, value in after.items()} == {
        ("input", "count"): 1,
        ("input", "sum"): len(PROMPT),
        ("output", "count"): 1,
        ("output", "sum"): 8,
    }
