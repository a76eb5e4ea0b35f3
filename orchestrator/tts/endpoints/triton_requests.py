"""Inference requests as bytes: Triton's ModelInferRequest, encoded from a template. Pure.

Of a search's requests only the id, the token ids and a few scalars differ, so everything else is
encoded once. Field numbers are those of Triton's grpc_service.proto; the encoding is protobuf's, in
the order of the fields. The order of tensors is part of what the tests pin.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal, NamedTuple

import numpy as np
import numpy.typing as npt
from tritonclient.grpc import service_pb2

from tts.engines import wire

Encode = Callable[[str], bytes]
"""A ModelInferRequest's bytes with the id that is passed to it."""
Draw = Literal["greedy", "all", "top_k"]
"""How a token is drawn: the likeliest, of all, or of the k likeliest."""
_DRAWN_BY: dict[Draw, tuple[str, ...]] = {
    "greedy": (),  # neither top_p nor top_k means greedy on the wire
    "all": ("temperature", "runtime_top_p", "seed"),
    "top_k": ("temperature", "runtime_top_p", "seed", "runtime_top_k"),
}

WIRE_SHAPING = ("min_tokens", "repetition_penalty", "presence_penalty", "frequency_penalty")
"""Inputs of the contract that change the distribution that tokens are drawn from."""
HOST_SHAPING = (*WIRE_SHAPING, "min_p")
"""Inputs of the engine host of target openvino that change it."""

_MODEL_NAME, _ID, _PARAMETERS, _INPUTS, _OUTPUTS, _RAW = 1, 3, 4, 5, 6, 7  # of ModelInferRequest
_KEY, _VALUE, _INT64 = 1, 2, 2  # of a parameter, and of its value
_NAME, _DATATYPE, _SHAPE = 1, 2, 3  # of the tensors in it
_BYTES = 2  # wire type: a length, then so many bytes

_FORMATS = {"INT32": "i", "FP32": "f", "UINT64": "Q", "BOOL": "?"}
"""The format of a scalar for struct, by datatype."""


@dataclass(frozen=True)
class Constant:
    """An input whose value is part of the template."""

    name: str
    raw: bytes
    shape: tuple[int, ...] = (1,)
    """The shape of one row."""


class RequestTemplate:
    """Requests to one model that differ in their token ids and scalars.

    Inputs are, in this order: `input_ids` [1, N], the `scalars`, the `constants` and the `texts`,
    all named as in the wire contract.
    """

    def __init__(
        self,
        model: str,
        *,
        scalars: Sequence[str] = (),
        constants: Sequence[Constant] = (),
        texts: Sequence[str] = (),
        outputs: Sequence[str],
    ) -> None:
        self.model = model
        self._inputs = [
            *((name, (1,)) for name in scalars),
            *((constant.name, constant.shape) for constant in constants),
            *((name, (1,)) for name in texts),
        ]
        """Names, and the shapes of one row."""
        self._outputs = tuple(outputs)
        self._model_name = _field(_MODEL_NAME, model.encode())
        self._tensors = self._headers(1, self._outputs)
        self._formats = formats = [_FORMATS[wire.INPUTS[name]] for name in scalars]
        prefixes = [_raw(struct.calcsize(f"<{each}")) for each in formats]
        pairs = zip(prefixes, formats, strict=True)
        self._scalars = struct.Struct("<" + "".join(f"{len(p)}s{each}" for p, each in pairs))
        self._packed: list[bytes | float] = [each for p in prefixes for each in (p, 0)]
        """What `_scalars` packs: each scalar behind its prefix."""
        self._raw_constants = [constant.raw for constant in constants]
        self._constants = self._repeated(1)
        self._by_rows: dict[int, tuple[bytes, bytes]] = {}
        """Constant bytes by the number of rows: before the raw contents, and among them."""

    def encode(
        self,
        number: str,
        ids: npt.NDArray[np.int32],
        scalars: Sequence[float] = (),
        texts: Sequence[str] = (),
    ) -> bytes:
        """The request with this id, or without one, these token ids and the values that vary."""
        raw_ids = ids.astype("<i4", casting="safe", copy=False).tobytes()
        packed = self._packed.copy()
        packed[1::2] = scalars
        return b"".join(
            (
                self._model_name,
                _field(_ID, number.encode()) if number else b"",
                _ids_input(len(ids)),
                self._tensors,
                _raw(len(raw_ids)),
                raw_ids,
                self._scalars.pack(*packed),
                self._constants,
                *(_field(_RAW, wire.encode_text(text)) for text in texts),
            )
        )

    def encode_rows(self, number: str, first: int, rows: Sequence[RequestRow]) -> bytes:
        """The request with this id for rows of this template, numbered from `first` on."""
        count, lengths = len(rows), [len(row.ids) for row in rows]
        if count not in self._by_rows:
            outputs = (*self._outputs, *wire.ROW_OUTPUTS)
            self._by_rows[count] = self._headers(count, outputs), self._repeated(count)
        headers, constants = self._by_rows[count]
        ids = np.zeros((count, max(lengths)), "<i4")
        for row, length, each in zip(ids, lengths, rows, strict=True):
            np.copyto(row[:length], each.ids, casting="safe")
        columns = zip(self._formats, zip(*(row.scalars for row in rows), strict=True), strict=True)
        texts = zip(*(row.texts for row in rows), strict=True)
        return b"".join(
            (
                self._model_name,
                _field(_ID, number.encode()),
                _int_parameter(wire.FIRST_ROW, first),
                _input("input_ids", ids.shape),
                headers,
                _field(_RAW, ids.tobytes()),
                *(
                    _field(_RAW, struct.pack(f"<{count}{each}", *column))
                    for each, column in columns
                ),
                constants,
                *(_field(_RAW, b"".join(map(wire.encode_text, column))) for column in texts),
            )
        )

    def _headers(self, rows: int, outputs: Sequence[str]) -> bytes:
        inputs = (_input(name, (rows, *shape)) for name, shape in self._inputs)
        return b"".join(
            (*inputs, *(_field(_OUTPUTS, _field(_NAME, name.encode())) for name in outputs))
        )

    def _repeated(self, rows: int) -> bytes:
        return b"".join(_field(_RAW, raw * rows) for raw in self._raw_constants)


class RequestRow(NamedTuple):
    """A request to a model, by itself or as a row of one."""

    template: RequestTemplate
    ids: npt.NDArray[np.int32]
    scalars: Sequence[float]
    texts: Sequence[str] = ()

    def encode(self, number: str) -> bytes:
        """The request with this id, or without one, for this row alone."""
        return self.template.encode(number, self.ids, self.scalars, self.texts)


def generate_template(
    end_id: int,
    stop_words: Sequence[tuple[int, ...]],
    draw: Draw,
    *,
    guided: bool,
    flags: tuple[bool, bool] | None,
    shaping: Sequence[tuple[str, float]] = (),
    model: str = wire.GENERATOR,
) -> RequestTemplate:
    """Samples of a model that writes.

    `flags` are whether tokens come one by one, and with their log-probabilities.

    Without flags, as a search sends them, they are answered once: the wire's default is off.
    `shaping` are inputs of HOST_SHAPING with their values.
    """
    constants = [_constant("end_id", end_id), _constant("exclude_input_in_output", True)]
    outputs = ["output_ids", "sequence_length"]
    if flags is not None:
        names = ("streaming", "return_log_probs")
        switches = [_constant(name, flag) for name, flag in zip(names, flags, strict=True)]
        constants = [constants[1], *switches, constants[0]]
        outputs += ["output_log_probs"] * flags[1]
    constants += [_constant(name, value) for name, value in shaping]
    if stop_words:
        layout = wire.encode_stop_words(stop_words)
        constants.append(Constant("stop_words_list", layout.tobytes(), layout.shape))
    return RequestTemplate(
        model,
        scalars=("input_lengths", "request_output_len", *_DRAWN_BY[draw]),
        constants=constants,
        texts=("guided_decoding_guide_type", "guided_decoding_guide") if guided else (),
        outputs=outputs,
    )


def score_template(model: str = wire.PRM, *, writes: bool = False) -> RequestTemplate:
    """Chains whose last step the verifier scores; `writes`: it has the generator's tensors."""
    return RequestTemplate(
        model,
        scalars=["input_lengths"],
        constants=[
            _constant("request_output_len", 1),
            _constant("return_generation_logits", True),
        ],
        outputs=["output_ids", "sequence_length", "generation_logits"] if writes else ["score"],
    )


def stop_request(number: str, model: str = wire.GENERATOR) -> bytes:
    """What stops the sample of this id. The lengths mean nothing; the model requires them."""
    message = service_pb2.ModelInferRequest(model_name=model, id=number)
    return _by_hand(message, input_lengths=1, request_output_len=1, stop=True)


def reset_request(model: str, number: str = "", *, scored: bool = False) -> bytes:
    """A request for one token that finds an empty cache, as the first one of a server does.

    `scored`: of a model that gives scores alone.
    """
    message = service_pb2.ModelInferRequest(model_name=model, id=number)
    message.parameters[wire.RESET_PREFIX_CACHE].bool_param = True
    logits = {"return_generation_logits": True} if scored else {}
    return _by_hand(message, input_ids=0, input_lengths=1, request_output_len=1, **logits)


def _by_hand(message: service_pb2.ModelInferRequest, **scalars: int) -> bytes:
    for name, value in scalars.items():
        message.inputs.add(name=name, datatype=wire.INPUTS[name], shape=[1, 1])
        message.raw_input_contents.append(wire.scalar(name, value).tobytes())
    data: bytes = message.SerializeToString()
    return data


def _constant(name: str, value: float) -> Constant:
    return Constant(name, wire.scalar(name, value).tobytes())


@lru_cache(maxsize=4096)
def _ids_input(length: int) -> bytes:
    return _input("input_ids", (1, length))


def _input(name: str, shape: Sequence[int]) -> bytes:
    datatype, sizes = (wire.INPUTS | wire.HOST_INPUTS)[name].encode(), b"".join(map(_varint, shape))
    tensor = _field(_NAME, name.encode()) + _field(_DATATYPE, datatype) + _field(_SHAPE, sizes)
    return _field(_INPUTS, tensor)


def _int_parameter(name: str, value: int) -> bytes:
    content = _varint(_INT64 << 3) + _varint(value)
    return _field(_PARAMETERS, _field(_KEY, name.encode()) + _field(_VALUE, content))


@lru_cache(maxsize=4096)
def _raw(size: int) -> bytes:
    """What stands in front of a raw content of so many bytes."""
    return _varint(_RAW << 3 | _BYTES) + _varint(size)


def _field(number: int, content: bytes) -> bytes:
    return _varint(number << 3 | _BYTES) + _varint(len(content)) + content


@lru_cache(maxsize=4096)
def _varint(value: int) -> bytes:
    """Seven bits to a byte, the lowest first; all but the last have the highest bit set."""
    encoded = bytearray()
    while value >= 0x80:
        encoded.append(value & 0x7F | 0x80)
        value >>= 7
    encoded.append(value)
    return bytes(encoded)
