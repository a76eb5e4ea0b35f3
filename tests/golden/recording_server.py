"""A stand-in of Triton that keeps every request as it came over the wire, and answers at once."""

import asyncio
import random
import struct
import threading
import zlib

import grpc
import numpy as np
from tritonclient.grpc import service_pb2

_SERVICE = "/inference.GRPCInferenceService"


class RecordingServer:
    """Use it as a context manager; `requests` are the bytes of each, in the order of arrival.

    What the generator writes depends on a request's ids and seed alone: steps of `words` that end
    with `delimiter`, as those of `ScriptedGenerator`.
    """

    def __init__(self, socket, words, delimiter):
        self.address = f"unix:{socket}"
        self.requests = []
        self._words, self._delimiter = words, delimiter
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever)

    def __enter__(self):
        self._thread.start()
        self._server = self._in_loop(self._start())
        return self

    def __exit__(self, *failure):
        self._in_loop(self._server.stop(grace=1))
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def taken(self):
        """The requests since the last call."""
        taken, self.requests = self.requests, []
        return taken

    def requests_to(self, model):
        """Those to a model."""
        begin = b"\x0a" + bytes([len(model)]) + model.encode()
        return [data for data in self.requests if data.startswith(begin)]

    def _in_loop(self, work):
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(60)

    async def _start(self):
        server = grpc.aio.server()
        server.add_generic_rpc_handlers((_Handlers(self),))
        server.add_insecure_port(self.address)
        await server.start()
        return server

    async def stream(self, requests, context):
        async for data in requests:
            self.requests.append(data)
            request = service_pb2.ModelInferRequest.FromString(data)
            yield service_pb2.ModelStreamInferResponse(infer_response=self._generated(request))

    async def infer(self, data, context):
        self.requests.append(data)
        request = service_pb2.ModelInferRequest.FromString(data)
        response = service_pb2.ModelInferResponse(model_name=request.model_name, id=request.id)
        score = zlib.crc32(_inputs(request)["input_ids"]) % 6 / 5
        _add(response, "score", "FP32", struct.pack("<f", score))
        return response

    def _generated(self, request):
        inputs = _inputs(request)
        (limit,) = struct.unpack("<i", inputs["request_output_len"])
        seed = inputs.get("seed") or zlib.crc32(inputs["input_ids"]).to_bytes(4, "little")
        choice = random.Random(seed)
        ids = []
        while len(ids) < limit:
            for _ in range(choice.randint(1, 3)):
                ids += choice.choice(self._words)
            if choice.random() < 0.25:
                break
            ids += self._delimiter
            if "stop_words_list" in inputs:
                break
        ids = ids[:limit]
        response = service_pb2.ModelInferResponse(model_name=request.model_name, id=request.id)
        response.parameters["triton_final_response"].bool_param = True
        _add(response, "output_ids", "INT32", np.asarray(ids, "<i4").tobytes())
        _add(response, "sequence_length", "INT32", struct.pack("<i", len(ids)))
        if inputs.get("return_log_probs") == b"\1":
            _add(response, "output_log_probs", "FP32", np.full(len(ids), -0.5, "<f4").tobytes())
        return response


class _Handlers(grpc.GenericRpcHandler):
    """Both methods, with requests as bytes."""

    def __init__(self, server):
        self._server = server

    def service(self, details):
        serializer = type(service_pb2.ModelInferResponse()).SerializeToString
        if details.method == f"{_SERVICE}/ModelStreamInfer":
            serializer = type(service_pb2.ModelStreamInferResponse()).SerializeToString
            return grpc.stream_stream_rpc_method_handler(
                self._server.stream, response_serializer=serializer
            )
        assert details.method == f"{_SERVICE}/ModelInfer"
        return grpc.unary_unary_rpc_method_handler(
            self._server.infer, response_serializer=serializer
        )


def without_id(data):
    """A request's bytes without its id, which names its stream and counts there."""
    request = service_pb2.ModelInferRequest.FromString(data)
    if not request.id:
        return data
    number = b"\x1a" + bytes([len(request.id)]) + request.id.encode()  # the third field
    before = 2 + len(request.model_name)
    assert data[before:].startswith(number)
    return data[:before] + data[before + len(number) :]


def _inputs(request):
    names = [each.name for each in request.inputs]
    return dict(zip(names, request.raw_input_contents, strict=True))


def _add(response, name, datatype, raw):
    response.outputs.add(name=name, datatype=datatype, shape=[1, 1])
    response.raw_output_contents.append(raw)
