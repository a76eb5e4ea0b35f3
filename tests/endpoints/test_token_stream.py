"""Samples token by token on a scripted call; tests/end_to_end has them on a real server."""

import asyncio

import numpy as np
import pytest
from tests.endpoints.test_shared_stream import Call, lost

from tts.build.errors import EndpointError, EndpointUnavailable, RequestRefused
from tts.endpoints import token_stream
from tts.endpoints.token_stream import TokenCall, TokenStreams
from tts.engines import wire

CALL = TokenCall(np.array([5, 6], dtype=np.int32), 9, end_id=2, log_probs=True)


class Answering(Call):
    """A call that answers with tokens."""

    def tokens(self, number, ids, *, final, log_probs=()):
        raw = [np.array(ids, np.int32).tobytes(), len(ids).to_bytes(4, "little")]
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

    def refuse(self, number, message):
        from tritonclient.grpc import service_pb2

        response = service_pb2.ModelInferResponse(id=number)
        self._answers.put_nowait(
            service_pb2.ModelStreamInferResponse(infer_response=response, error_message=message)
        )


def run(scene):
    async def go():
        calls = []

        def opened():
            calls.append(Answering())
            return calls[-1]

        streams = TokenStreams("localhost:1")
        streams._open = opened
        await scene(streams, calls)
        for call in calls:
            if not call.half_closed:
                call.end(lost())
        for stream in streams._streams:
            await stream.wait_closed()
        await streams._channel.close()

    asyncio.run(go())


async def settle():
    for _ in range(5):
        await asyncio.sleep(0)


def inputs(message):
    return {tensor.name for tensor in message.inputs}


def test_tokens_are_handed_over_as_they_come_and_together_if_nobody_waited():
    async def scene(streams, calls):
        sample = streams.start(CALL)
        waiting = asyncio.ensure_future(sample.next())
        await settle()
        (call,) = calls
        number = call.written[0].id
        assert {"streaming", "return_log_probs", "end_id"} <= inputs(call.written[0])
        call.tokens(number, [7], final=False, log_probs=[-0.5])
        first = await waiting
        assert (first.ids, first.log_probs, first.final) == ([7], [-0.5], False)
        call.tokens(number, [8], final=False, log_probs=[-0.5, -0.25])
        call.tokens(number, [9], final=False, log_probs=[-0.5, -0.25, -1.0])
        call.tokens(number, [], final=True)
        await settle()
        rest = await sample.next()
        assert (rest.ids, rest.log_probs, rest.final) == ([8, 9], [-0.25, -1.0], True)

    run(scene)


def test_cancelling_stops_the_request_and_nothing_else():
    async def scene(streams, calls):
        one, other = streams.start(CALL), streams.start(CALL)
        await settle()
        (call,) = calls
        one.cancel()
        one.cancel()
        await settle()
        first, second, stop = call.written
        assert stop.id == first.id != second.id
        assert "stop" in inputs(stop)
        call.tokens(first.id, [1], final=True)  # on its way already
        call.tokens(second.id, [3], final=True)
        assert (await other.next()).ids == [3]
        other.cancel()
        await settle()
        assert len(call.written) == 3

    run(scene)


def test_greedy_and_sampled_requests_differ_as_the_wire_wants_it():
    async def scene(streams, calls):
        sampled = TokenCall(CALL.input_ids, 9, wire.NO_END_ID, 4, 0.5, 0.9, 10, ((1,), (2, 3)))
        streams.start(CALL)
        streams.start(sampled)
        await settle()
        greedy, drawn = calls[0].written
        extra = {"temperature", "runtime_top_p", "runtime_top_k", "seed", "stop_words_list"}
        assert inputs(drawn) - inputs(greedy) == extra
        assert not inputs(greedy) & extra

    run(scene)


@pytest.mark.parametrize(
    ("message", "kind"),
    [
        ("[refused] top_k is -1", RequestRefused),
        ("[unavailable] the engine failed: x", EndpointUnavailable),
    ],
)
def test_a_refusal_is_raised_where_the_sample_is_read(message, kind):
    async def scene(streams, calls):
        sample = streams.start(CALL)
        await settle()
        calls[0].refuse(calls[0].written[0].id, message)
        with pytest.raises(kind, match=message.partition("] ")[2]):
            await sample.next()

    run(scene)


def test_a_stream_that_breaks_gives_what_it_had_and_then_fails():
    async def scene(streams, calls):
        sample = streams.start(CALL)
        await settle()
        calls[0].tokens(calls[0].written[0].id, [7], final=False)
        calls[0].end(lost())
        await settle()
        assert (await sample.next()).ids == [7]
        with pytest.raises(EndpointError):
            await sample.next()
        again = streams.start(CALL)
        await settle()
        assert len(calls) == 2
        calls[1].tokens(calls[1].written[0].id, [1], final=True)
        assert (await again.next()).final

    run(scene)


def test_under_load_several_tokens_are_handed_over_together_and_the_last_waits_for_nothing(
    monkeypatch,
):
    monkeypatch.setattr(token_stream, "PIECE_S", 1000.0)

    async def scene(streams, calls):
        sample = streams.start(CALL)
        await settle()
        number = calls[0].written[0].id
        calls[0].tokens(number, [1], final=False)
        assert (await sample.next()).ids == [1]  # the first waits for nothing
        reading = asyncio.ensure_future(sample.next())
        await settle()
        calls[0].tokens(number, [2], final=False)
        await settle()
        assert not reading.done()
        calls[0].tokens(number, [3], final=False)
        await settle()
        assert not reading.done()
        calls[0].tokens(number, [4], final=True)
        assert (await reading).ids == [2, 3, 4]

    run(scene)
