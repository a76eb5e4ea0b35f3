"""The shared stream on a scripted call; tests/server has it on a real server."""

import asyncio

import grpc
import pytest
from tritonclient.grpc import service_pb2

from tts.endpoints import triton_stream as stream
from tts.endpoints.triton_stream import SharedStream


class Call:
    """A bidirectional call as grpc.aio's: what was written, and answers on demand."""

    def __init__(self):
        self.written, self.half_closed = [], False
        self._answers = asyncio.Queue()

    async def write(self, message):
        self.written.append(service_pb2.ModelInferRequest.FromString(message))

    async def done_writing(self):
        self.half_closed = True
        self._answers.put_nowait(grpc.aio.EOF)

    async def read(self):
        message = await self._answers.get()
        if isinstance(message, Exception):
            raise message
        return message

    def answer(self, number, **fields):
        response = service_pb2.ModelInferResponse(id=number, **fields)
        self._answers.put_nowait(service_pb2.ModelStreamInferResponse(infer_response=response))

    def end(self, failure):
        self._answers.put_nowait(failure)

    async def code(self):
        return grpc.StatusCode.OK

    async def details(self):
        return ""

    async def initial_metadata(self):
        return grpc.aio.Metadata()

    trailing_metadata = initial_metadata


def run(scene):
    async def go():
        call = Call()
        shared = SharedStream(call)
        await scene(call, shared)
        if not call.half_closed:
            call.end(lost())
        await asyncio.wait([shared._reader, shared._writer])

    asyncio.run(asyncio.wait_for(go(), 10))


def lost():
    empty = grpc.aio.Metadata()
    return grpc.aio.AioRpcError(grpc.StatusCode.UNAVAILABLE, empty, empty, "connection lost")


def encode(number):
    request = service_pb2.ModelInferRequest(model_name="generator", id=number)
    return request.SerializeToString()


async def send(shared, count=1, timeout_s=60.0):
    """Requests in flight: their tasks."""
    tasks = [
        asyncio.ensure_future(shared.infer("generator", encode, timeout_s)) for _ in range(count)
    ]
    await settle()
    return tasks


async def settle():
    for _ in range(5):
        await asyncio.sleep(0)


def test_answers_in_any_order_find_their_requests():
    async def scene(call, shared):
        tasks = await send(shared, 5)
        numbers = [message.id for message in call.written]
        assert len(set(numbers)) == 5
        call.answer("unknown")
        for number in reversed(numbers):
            call.answer(number, model_version=number)
        answers = await asyncio.gather(*tasks)
        assert [answer.infer_response.model_version for answer in answers] == numbers

    run(scene)


def test_a_cancelled_request_is_stopped_and_its_late_answers_are_ignored():
    async def scene(call, shared):
        one, other = await send(shared, 2)
        one.cancel()
        await settle()
        first, second, stop = call.written
        assert (stop.id, stop.model_name) == (first.id, "generator")
        tensors = [tensor.name for tensor in stop.inputs]
        assert dict(zip(tensors, stop.raw_input_contents, strict=True))["stop"] == b"\x01"
        assert {"input_lengths", "request_output_len"} < set(tensors)
        call.answer(first.id)  # to the request
        call.answer(first.id)  # to the stop
        call.answer(second.id)
        assert (await other).infer_response.id == second.id
        assert one.cancelled()

    run(scene)


def test_a_request_that_is_not_answered_in_time_is_stopped():
    async def scene(call, shared):
        (late,) = await send(shared, timeout_s=0.0)
        (other,) = await send(shared)
        with pytest.raises(TimeoutError):
            await late
        await settle()
        first, stop = [message for message in call.written if message.id == call.written[0].id]
        assert [tensor.name for tensor in stop.inputs][-1] == "stop"
        call.answer(first.id)
        (second,) = {message.id for message in call.written} - {first.id}
        call.answer(second)
        assert (await other).infer_response.id == second

    run(scene)


def test_a_broken_stream_fails_everything_on_it_and_takes_nothing_more():
    async def scene(call, shared):
        tasks = await send(shared, 3)
        call.end(lost())
        for outcome in await asyncio.gather(*tasks, return_exceptions=True):
            assert isinstance(outcome, grpc.aio.AioRpcError)
            assert outcome.details() == "connection lost"
        assert not shared.open

    run(scene)


def test_a_stream_that_the_server_closes_fails_what_is_left():
    async def scene(call, shared):
        (task,) = await send(shared)
        call.end(grpc.aio.EOF)
        with pytest.raises(grpc.aio.AioRpcError, match="ended without an answer"):
            await task

    run(scene)


def test_a_full_stream_ends_after_its_last_answer(monkeypatch):
    monkeypatch.setattr(stream, "REQUESTS_PER_STREAM", 3)

    async def scene(call, shared):
        tasks = await send(shared, 3)
        assert not shared.open
        *numbers, last = [message.id for message in call.written]
        tasks[-1].cancel()
        await settle()
        assert not call.half_closed
        for number in numbers:
            call.answer(number)
        await asyncio.gather(*tasks[:-1])
        await settle()
        assert call.half_closed
        assert call.written[-1].id == last, "its stop was sent before the end"

    run(scene)
