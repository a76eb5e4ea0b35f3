"""The Triton client where no server is needed; tests/server has the rest."""

import asyncio
from contextlib import asynccontextmanager

import grpc
import numpy as np
import pytest
from tritonclient.grpc import service_pb2, service_pb2_grpc

from tts.base.errors import EndpointUnavailable, RequestRefused
from tts.endpoints import retry
from tts.endpoints.base import GenerateCall, ScoreCall, VerifierResult
from tts.endpoints.streaming import OutputEnds
from tts.endpoints.triton import TritonConnection
from tts.engines import wire
from tts.engines.wire import RESET_PREFIX_CACHE

TWO = ScoreCall(np.int32([1, 2]))


@pytest.fixture(scope="module", autouse=True)
async def loop_of_all_tests(anyio_backend):
    """gRPC tells a loop of calls that have ended after its test has: one loop outlives them."""
    yield
    await asyncio.sleep(0.1)


async def test_a_server_that_is_not_there_is_named():
    async with TritonConnection("127.0.0.1:1") as connection:
        connection.limit_patience(0.0)
        with pytest.raises(EndpointUnavailable, match=r"server at 127\.0\.0\.1:1 is gone"):
            await connection.verifier().score(TWO)


async def test_a_server_that_dies_again_and_again_is_given_up_with_a_sentence(monkeypatch):
    monkeypatch.setattr(retry, "FIRST_WAIT_S", 0.0)
    asked = []

    def comes_back():  # down for three questions, up for two, and so on
        asked.append(True)
        return len(asked) % 5 < 3

    with pytest.raises(EndpointUnavailable, match="has died 3 times without an answer"):
        async with TritonConnection("127.0.0.1:1", comes_back) as connection:
            await connection.verifier().score(TWO)
    assert len(asked) == 10, "the first, fifth and tenth question found it down"


class _Engines(service_pb2_grpc.GRPCInferenceServiceServicer):
    """A verifier that answers 0.5, and a generator that gives 7 and 8, one by one."""

    def __init__(self):
        self.asked = []

    async def ModelStreamInfer(self, requests, context):
        async for request in requests:
            self.asked.append(request)
            for token in (7, 8):
                answer = service_pb2.ModelInferResponse(id=request.id)
                answer.parameters["triton_final_response"].bool_param = token == 8
                for name, value in (("output_ids", token), ("sequence_length", 1)):
                    answer.outputs.add(name=name, datatype="INT32", shape=[1, 1])
                    answer.raw_output_contents.append(np.int32(value).tobytes())
                yield service_pb2.ModelStreamInferResponse(infer_response=answer)

    async def ModelInfer(self, request, context):
        self.asked.append(request)
        answer = service_pb2.ModelInferResponse(model_name=request.model_name)
        answer.outputs.add(name="score", datatype="FP32", shape=[1])
        answer.raw_output_contents.append(np.float32(0.5).tobytes())
        return answer


async def _serve(port, engines=None):
    server = grpc.aio.server(options=[("grpc.so_reuseport", 0)])
    service_pb2_grpc.add_GRPCInferenceServiceServicer_to_server(engines or _Engines(), server)
    port = server.add_insecure_port(f"127.0.0.1:{port}")
    await server.start()
    return server, port


async def test_a_server_that_is_replaced_is_survived():
    server, port = await _serve(0)
    async with TritonConnection(f"127.0.0.1:{port}") as connection:
        verifier = connection.verifier()
        assert await verifier.score(TWO) == VerifierResult(0.5)
        await server.stop(None)
        asked = asyncio.ensure_future(verifier.score(TWO))
        await asyncio.sleep(0.3)  # the first attempt has failed
        assert not asked.done()
        server, _ = await _serve(port)
        assert await asked == VerifierResult(0.5)
    await server.stop(None)


async def test_tokens_are_streamed_over_a_new_connection_once_a_server_is_back():
    """gRPC waits a second and more before it connects again to what was not there."""

    async def tokens(generator):
        call = GenerateCall(np.int32([1, 2]), 9, 1, 0.0, 1.0, stop_at_step=False)
        return [token async for new in generator.stream(call) for token in new.ids]

    server, port = await _serve(0)
    async with TritonConnection(f"127.0.0.1:{port}") as connection:
        generator = connection.generator(OutputEnds(2))
        assert await tokens(generator) == [7, 8]
        first = connection._tokens
        await server.stop(None)
        gone = f"127.0.0.1:{port} is gone|Internal error from Core"  # gRPC's own, at times
        with pytest.raises(EndpointUnavailable, match=gone):
            await tokens(generator)
        server, _ = await _serve(port)
        assert await tokens(generator) == [7, 8]
        assert connection._tokens is not first
        again = connection._tokens
        assert await tokens(generator) == [7, 8]
        assert connection._tokens is again
    await server.stop(None)


class _Scores(service_pb2_grpc.GRPCInferenceServiceServicer):
    """A verifier that scores by rows, once it is let, but for those whose prompts tell it not to.

    A row's score is 1 divided by its prompt's length. One of length 9 is refused, one of length 8
    fails once and is scored the second time.
    """

    def __init__(self):
        self.asked = []
        """The lengths of each request's prompts."""
        self.let, self.cancelled = asyncio.Event(), False
        self._failed = False

    async def ModelInfer(self, request, context):
        raw = dict(zip((i.name for i in request.inputs), request.raw_input_contents, strict=True))
        lengths = np.frombuffer(raw["input_lengths"], np.int32).tolist()
        self.asked.append(lengths)
        try:
            await self.let.wait()
        except asyncio.CancelledError:
            self.cancelled = True
            raise
        errors = ["[refused] nine" if length == 9 else "" for length in lengths]
        if 8 in lengths and not self._failed:
            self._failed = True
            errors[lengths.index(8)] = "[unavailable] the engine died"
        first = request.parameters[wire.FIRST_ROW].int64_param
        order = list(reversed(range(len(lengths))))  # rows are told by number
        scores = [0.0 if errors[row] else 1 / lengths[row] for row in order]
        answer = service_pb2.ModelInferResponse(model_name=request.model_name)
        for name, content in (
            ("batch_index", np.array([first + row for row in order], np.int32).tobytes()),
            ("score", np.array(scores, np.float32).tobytes()),
            ("error", b"".join(wire.encode_text(errors[row]) for row in order)),
        ):
            answer.outputs.add(name=name)
            answer.raw_output_contents.append(content)
        return answer


@asynccontextmanager
async def scoring():
    """That verifier's model, and how a prompt of a length is scored by it."""
    scores = _Scores()
    server, port = await _serve(0, scores)
    try:
        async with TritonConnection(f"127.0.0.1:{port}", most_rows=4) as connection:
            verifier = connection.verifier()
            yield scores, lambda n: verifier.score(ScoreCall(np.zeros(n, np.int32)))
    finally:  # else its end fails another test
        await server.stop(None)


async def test_chains_of_one_turn_are_scored_together_and_only_what_failed_is_asked_again():
    async with scoring() as (scores, score):
        scores.let.set()
        asked = (2, 9, 8, 4, 5)
        found = await asyncio.gather(*map(score, asked), return_exceptions=True)
        refused = found.pop(1)
        assert isinstance(refused, RequestRefused)
        assert "nine" in refused.message
        assert [result.score for result in found] == [0.5, 0.125, 0.25, np.float32(0.2)]
        assert sorted(scores.asked) == [[2, 9, 8, 4], [5], [8]]  # calls may overtake each other


async def test_a_request_for_scores_ends_when_nobody_waits_for_any_of_them():
    async with scoring() as (scores, score):
        one, other = (asyncio.ensure_future(score(n)) for n in (2, 4))
        while not scores.asked:
            await asyncio.sleep(0.01)
        one.cancel()
        scores.let.set()
        assert (await other).score == 0.25
        scores.let.clear()
        both = [asyncio.ensure_future(score(n)) for n in (2, 4)]
        while len(scores.asked) < 2:
            await asyncio.sleep(0.01)
        assert scores.asked == [[2, 4]] * 2
        for each in both:
            each.cancel()
        while not scores.cancelled:
            await asyncio.sleep(0.01)


async def test_both_engines_are_asked_for_a_token_that_finds_an_empty_cache():
    engines = _Engines()

    server, port = await _serve(0, engines)
    async with TritonConnection(f"127.0.0.1:{port}") as connection:
        assert await connection.reset_prefix_caches()
    await server.stop(None)
    assert {request.model_name for request in engines.asked} == {"generator", "prm"}
    for request in engines.asked:
        assert request.parameters[RESET_PREFIX_CACHE].bool_param
        shapes = {tensor.name: list(tensor.shape) for tensor in request.inputs}
        assert shapes.keys() >= {"input_ids", "input_lengths", "request_output_len"}
        assert set(map(tuple, shapes.values())) == {(1, 1)}
