"""Samples on scripted calls; tests/end_to_end has them on a real server."""

import asyncio
from contextlib import asynccontextmanager

import grpc
import numpy as np
import pytest
from tritonclient.grpc import service_pb2

from tts.base.errors import EndpointError
from tts.endpoints import triton_stream
from tts.endpoints.together import TickBatcher
from tts.endpoints.triton_errors import ErrorAnswer
from tts.endpoints.triton_requests import RequestRow, RequestTemplate
from tts.endpoints.triton_stream import Streams
from tts.engines import wire
from tts.engines.responses import row_tensors


class Call:
    """A bidirectional call as grpc.aio's: what was written, and answers on demand."""

    def __init__(self):
        self.written, self.half_closed = [], False
        self._answers = asyncio.Queue()

    @property
    def numbers(self):
        return [message.id for message in self.written]

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

    def answer(self, number, error="", **fields):
        response = service_pb2.ModelInferResponse(id=number, **fields)
        self._answers.put_nowait(
            service_pb2.ModelStreamInferResponse(infer_response=response, error_message=error)
        )

    def tokens(self, number, ids, *, final, log_probs=(), length=None):
        length = len(ids) if length is None else length
        raw = [np.array(ids, np.int32).tobytes(), length.to_bytes(4, "little")]
        names = ["output_ids", "sequence_length"]
        if log_probs:
            raw.append(np.array(log_probs, np.float32).tobytes())
            names.append("output_log_probs")
        self.answer(
            number,
            outputs=[{"name": name} for name in names],
            raw_output_contents=raw,
            parameters={"triton_final_response": {"bool_param": final}},
        )

    def rows(self, number, *rows):
        """Rows by number: token ids, or an error."""
        answers = [(n, ids if isinstance(ids, str) else tokens_of(ids)) for n, ids in rows]
        given = row_tensors(answers)
        raw = [
            b"".join(wire.encode_text(text.decode()) for text in tensor.ravel())
            if name == wire.ERROR
            else tensor.tobytes()
            for name, tensor in given.items()
        ]
        outputs = [{"name": name} for name in given]
        self.answer(number, outputs=outputs, raw_output_contents=raw)

    def end(self, failure):
        self._answers.put_nowait(failure)

    async def code(self):
        return grpc.StatusCode.OK

    async def details(self):
        return ""

    async def initial_metadata(self):
        return grpc.aio.Metadata()

    trailing_metadata = initial_metadata


def tokens_of(ids):
    length = np.array([[len(ids)]], np.int32)
    return {"output_ids": np.array([[ids]], np.int32), "sequence_length": length}


@asynccontextmanager
async def streaming(most_rows=1, most_streams=1):
    """Streams, and the calls that they open."""
    calls = []

    def opened():
        calls.append(Call())
        return calls[-1]

    streams = Streams(opened, most_rows, most_streams)
    yield streams, calls
    for call in calls:
        if not call.half_closed:
            call.end(lost())
    await streams.wait_closed()


@asynccontextmanager
async def one_sample():
    """A sample whose tokens come as they are written, its call and its number."""
    async with streaming() as (streams, calls):
        (sample,) = await send(streams, whole=False)
        (call,) = calls
        yield sample, call, call.numbers[0]


def lost():
    empty = grpc.aio.Metadata()
    return grpc.aio.AioRpcError(grpc.StatusCode.UNAVAILABLE, empty, empty, "connection lost")


def encode(number):
    request = service_pb2.ModelInferRequest(model_name="generator", id=number)
    return request.SerializeToString()


async def send(streams, count=1, *, whole=True):
    samples = [streams.start(encode, whole=whole) for _ in range(count)]
    await settle()
    return samples


async def settle():
    for _ in range(5):
        await asyncio.sleep(0)


def tensors(message):
    names = [tensor.name for tensor in message.inputs]
    return dict(zip(names, message.raw_input_contents, strict=True))


async def test_whole_answers_in_any_order_find_their_requests():
    async with streaming() as (streams, calls):
        samples = await send(streams, 5)
        (call,) = calls
        assert len(set(call.numbers)) == 5
        call.answer("unknown")
        for place in reversed(range(5)):
            call.tokens(call.numbers[place], [place, 9], final=False, length=1)
        answers = [await sample.next() for sample in samples]
        assert [answer.ids for answer in answers] == [[0], [1], [2], [3], [4]]
        assert all(answer.final for answer in answers), "its first answer is its last"


async def test_tokens_are_handed_over_as_they_come_and_together_if_nobody_waited():
    async with one_sample() as (sample, call, number):
        waiting = asyncio.ensure_future(sample.next())
        await settle()
        call.tokens(number, [7], final=False, log_probs=[-0.5])
        first = await waiting
        assert (first.ids, first.log_probs, first.final) == ([7], [-0.5], False)
        call.tokens(number, [8], final=False, log_probs=[-0.5, -0.25])
        call.tokens(number, [9], final=False, log_probs=[-0.5, -0.25, -1.0])
        call.tokens(number, [], final=True)
        await settle()
        rest = await sample.next()
        assert (rest.ids, rest.log_probs, rest.final) == ([8, 9], [-0.25, -1.0], True)


async def test_the_tensors_of_an_answer_come_in_any_order():
    async with one_sample() as (sample, call, number):
        call.answer(
            number,
            outputs=[{"name": "sequence_length"}, {"name": "output_ids"}],
            raw_output_contents=[np.int32(1).tobytes(), np.int32(7).tobytes()],
            parameters={"triton_final_response": {"bool_param": True}},
        )
        assert (await sample.next()).ids == [7]


async def test_a_last_answer_may_hold_nothing():
    async with one_sample() as (sample, call, number):
        call.tokens(number, [7], final=False)
        call.answer(number, parameters={"triton_final_response": {"bool_param": True}})
        await settle()
        new = await sample.next()
        assert (new.ids, new.final) == ([7], True)


@pytest.mark.parametrize("whole", [True, False])
async def test_cancelling_stops_the_request_and_nothing_else(whole):
    async with streaming() as (streams, calls):
        one, other = await send(streams, 2, whole=whole)
        (call,) = calls
        one.cancel()
        one.cancel()
        await settle()
        first, second, stop = call.written
        assert (stop.id, stop.model_name) == (first.id, "generator")
        assert tensors(stop)["stop"] == b"\x01"
        assert {"input_lengths", "request_output_len"} < tensors(stop).keys()
        call.tokens(first.id, [1], final=True)  # to the request
        call.answer(first.id)  # to the stop
        call.tokens(second.id, [3], final=True)
        assert (await other.next()).ids == [3]
        other.cancel()
        await settle()
        assert len(call.written) == 3


@pytest.mark.parametrize("end", ["cancelled", "by itself", "stream"])
async def test_what_comes_of_a_stopped_request_is_counted_up_to_its_own_end(end):
    async with one_sample() as (sample, call, number):
        call.tokens(number, [1], final=False)
        await sample.next()
        call.tokens(number, [2], final=False)  # not read
        await settle()
        sample.cancel()
        rest = asyncio.ensure_future(sample.rest())
        call.tokens(number, [3, 4], final=False)
        call.answer(
            number, parameters={"triton_final_response": {"bool_param": True}}
        )  # the stop's
        call.tokens(number, [5], final=end == "by itself")
        if end == "cancelled":
            call.answer(number, "[cancelled] the request was cancelled")
        elif end == "stream":
            await settle()
            call.end(grpc.aio.EOF)
        assert await asyncio.wait_for(rest, triton_stream.REST_S / 2) == 4


@pytest.mark.parametrize(
    ("answer", "kind", "words"),
    [
        ({"model_name": "generator"}, EndpointError, "model generator holds no output"),
        ({"error": "[refused] top_k is -1"}, ErrorAnswer, "top_k is -1"),
    ],
)
async def test_an_error_or_an_answer_without_tokens_fails_its_request_alone(answer, kind, words):
    async with streaming() as (streams, calls):
        one, other = await send(streams, 2)
        (call,) = calls
        call.answer(call.numbers[0], **answer)
        call.tokens(call.numbers[1], [3], final=True)
        assert (await other.next()).ids == [3]
        with pytest.raises(kind, match=words):
            await one.next()


async def test_a_broken_stream_gives_what_it_had_fails_everything_on_it_and_takes_nothing_more():
    async with streaming() as (streams, calls):
        first, *others = await send(streams, 3, whole=False)
        calls[0].tokens(calls[0].numbers[0], [7], final=False)
        calls[0].end(lost())
        await settle()
        assert streams.broken
        assert not streams.running
        assert (await first.next()).ids == [7]
        for sample in (first, *others):
            with pytest.raises(grpc.aio.AioRpcError, match="connection lost"):
                await sample.next()
        (again,) = await send(streams)
        assert not streams.broken
        calls[1].tokens(calls[1].numbers[0], [1], final=True)
        assert (await again.next()).final


async def test_a_stream_that_the_server_closes_fails_what_is_left():
    async with streaming() as (streams, calls):
        (sample,) = await send(streams)
        calls[0].end(grpc.aio.EOF)
        with pytest.raises(grpc.aio.AioRpcError, match="ended without an answer"):
            await sample.next()


async def test_a_full_stream_ends_after_its_last_answer(monkeypatch):
    monkeypatch.setattr(triton_stream, "REQUESTS_PER_STREAM", 3)

    async with streaming() as (streams, calls):
        samples = await send(streams, 4)
        call, following = calls
        assert len(following.written) == 1
        *numbers, last = call.numbers
        samples[2].cancel()
        await settle()
        assert not call.half_closed
        for number in numbers:
            call.tokens(number, [1], final=True)
        await asyncio.gather(*(sample.next() for sample in samples[:2]))
        await settle()
        assert call.half_closed
        assert call.numbers[-1] == last, "its stop was sent before the end"
        assert not streams.broken


async def test_under_load_several_tokens_are_handed_over_together_and_the_last_waits_for_nothing(
    monkeypatch,
):
    monkeypatch.setattr(triton_stream, "PIECE_S", 1000.0)
    monkeypatch.setattr(triton_stream, "LONGEST_WAIT_S", 1000.0)

    async with one_sample() as (sample, call, number):
        call.tokens(number, [1], final=False)
        assert (await sample.next()).ids == [1]  # the first waits for nothing
        reading = asyncio.ensure_future(sample.next())
        for token in (2, 3):
            await settle()
            call.tokens(number, [token], final=False)
            await settle()
            assert not reading.done()
        call.tokens(number, [4], final=True)
        assert (await reading).ids == [2, 3, 4]


@pytest.mark.parametrize("piece_s", [1000.0, 0.02])  # of one alone, longer than the shortest wait
async def test_a_token_waits_for_others_for_a_time_only(monkeypatch, piece_s):
    monkeypatch.setattr(triton_stream, "PIECE_S", piece_s)
    async with one_sample() as (sample, call, number):
        for token in (1, 2, 3):
            call.tokens(number, [token], final=False)
            assert (await asyncio.wait_for(sample.next(), 30)).ids == [token]


async def test_samples_start_on_idle_streams_and_share_the_least_busy_one():
    async with streaming(most_streams=3) as (streams, calls):
        first = await send(streams, whole=False)
        second, third = await send(streams, 2, whole=False)
        assert [len(call.written) for call in calls] == [1, 1, 1]
        await send(streams, whole=False)  # no more than three
        assert [len(call.written) for call in calls] == [2, 1, 1]
        calls[1].tokens(calls[1].numbers[0], [1], final=True)
        assert (await second.next()).final
        await send(streams, whole=False)
        assert [len(call.written) for call in calls] == [2, 2, 1]
        calls[2].end(lost())
        with pytest.raises(grpc.aio.AioRpcError):
            await third.next()
        assert streams.broken
        await settle()
        await send(streams, whole=False)
        assert [len(call.written) for call in calls] == [2, 2, 1, 1]
        assert not streams.broken
        assert not first[0].final


ROWS = RequestTemplate("generator", scalars=["request_output_len"], outputs=["output_ids"])
OTHER_ROWS = RequestTemplate("generator", outputs=["output_ids"])


def start_rows(streams, *lengths):
    return [streams.start_row(RequestRow(ROWS, np.zeros(n, np.int32), [n])) for n in lengths]


def numbers_of(request):
    """The numbers of a request's rows."""
    first = request.parameters[wire.FIRST_ROW].int64_param
    assert request.id.endswith(f"-{first}+")
    return list(range(first, first + request.inputs[0].shape[0]))


async def test_samples_of_one_turn_are_rows_of_one_request_but_for_those_of_another_kind():
    async with streaming(most_rows=3) as (streams, calls):
        start_rows(streams, 3, 1)
        streams.start_row(RequestRow(OTHER_ROWS, np.zeros(2, np.int32), []))
        start_rows(streams, 2, 5)
        await settle()
        start_rows(streams, 4)
        await settle()
        (call,) = calls
        assert [list(request.inputs[0].shape) for request in call.written] == [
            [3, 3],  # as many as may
            [1, 5],
            [1, 2],
            [1, 4],
        ]
        numbers = [number for request in call.written for number in numbers_of(request)]
        assert len(set(numbers)) == len(numbers) == 6


async def test_an_answer_may_hold_rows_of_earlier_requests_and_errors_of_some():
    async with streaming(most_rows=8) as (streams, calls):
        samples = start_rows(streams, 1, 1)
        await settle()
        samples += start_rows(streams, 1, 1)
        await settle()
        first, second = calls[0].written
        one, two, three, four = numbers_of(first) + numbers_of(second)
        calls[0].rows(second.id, (three, [7]), (one, [8, 9]), (two, "[refused] no"))
        assert [(await samples[place].next()).ids for place in (0, 2)] == [[8, 9], [7]]
        with pytest.raises(ErrorAnswer, match="no"):
            await samples[1].next()
        calls[0].rows(second.id, (four, "[unavailable] later"))
        with pytest.raises(ErrorAnswer, match="later"):
            await samples[3].next()


async def test_cancelling_a_row_stops_it_alone_and_one_that_is_not_sent_is_left_out():
    async with streaming(most_rows=8) as (streams, calls):
        unsent, one, other = start_rows(streams, 1, 2, 3)
        unsent.cancel()
        await settle()
        (call,) = calls
        request = call.written[0]
        first, second = numbers_of(request)
        one.cancel()
        await settle()
        stop = call.written[1]
        assert stop.id == request.id.partition("-")[0] + f"-{first}"
        assert tensors(stop)["stop"] == b"\x01"
        call.answer(stop.id, "nothing stopped")
        call.rows(request.id, (first, "[cancelled] the request was cancelled"), (second, [3]))
        assert (await other.next()).ids == [3]


async def test_a_request_by_rows_that_fails_as_a_whole_fails_what_it_was_to_answer():
    async with streaming(most_rows=8) as (streams, calls):
        samples = start_rows(streams, 1)
        await settle()
        samples += start_rows(streams, 1, 1)
        await settle()
        (later,) = start_rows(streams, 1)
        await settle()
        _, failed, last = calls[0].written
        calls[0].answer(failed.id, "[unavailable] the engine is shutting down")
        for sample in samples:
            with pytest.raises(ErrorAnswer, match="shutting down"):
                await sample.next()
        calls[0].rows(last.id, (*numbers_of(last), [5]))
        assert (await later.next()).ids == [5]


async def test_an_answer_without_rows_fails_its_request():
    async with streaming(most_rows=8) as (streams, calls):
        (sample,) = start_rows(streams, 1)
        await settle()
        calls[0].answer(calls[0].numbers[0], model_name="generator")
        with pytest.raises(EndpointError, match="model generator has no rows"):
            await sample.next()


async def test_a_turn_is_handed_over_by_key_in_order_and_in_parts():
    taken = []
    turns = TickBatcher(lambda key, items: taken.append((key, items)), 3)

    async def ask(key, item):
        turns.add(key, item)

    asked = [ask("a", item) for item in range(5)]
    await asyncio.gather(*asked, ask("b", 7))
    await asyncio.sleep(0)
    assert taken == [("a", [0, 1, 2]), ("a", [3, 4]), ("b", [7])]
    turns.add("a", 8)
    assert len(taken) == 3
    await asyncio.sleep(0)
    assert taken[3:] == [("a", [8])]


async def test_what_is_added_while_a_turn_is_handed_over_belongs_to_the_next():
    taken = []

    def take(key, items):
        taken.append(items)
        if items == [1]:
            turns.add("a", 2)

    turns = TickBatcher(take, 3)
    turns.add("a", 1)
    await asyncio.sleep(0)
    assert taken == [[1]]
    await asyncio.sleep(0)
    assert taken == [[1], [2]]
