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
from typing import Literal

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

_MODEL_NAME, _ID, _INPUTS, _OUTPUTS, _RAW = 1, 3, 5, 6, 7  # of ModelInferRequest
_NAME, _DATATYPE, _SHAPE = 1, 2, 3  # of the tensors in it
_BYTES = 2  # wire type: a length, then so many bytes

_FORMATS = {"INT32": "i", "FP32": "f", "UINT64": "Q", "BOOL": "?"}
"""The format of a scalar for struct, by datatype."""


@dataclass(frozen=True)
class Constant:
    """An input whose value is part of the template."""

    name: str
    raw: bytes
    shape: tuple[int, ...] = (1, 1)


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
        inputs = [
            *((name, (1, 1)) for name in scalars),
            *((constant.name, constant.shape) for constant in constants),
            *((name, (1, 1)) for name in texts),
        ]
        self._model_name = _field(_MODEL_NAME, model.encode())
        self._tensors = b"".join(_input(name, shape) for name, shape in inputs) + b"".join(
            _field(_OUTPUTS, _field(_NAME, name.encode())) for name in outputs
        )
        formats = [_FORMATS[wire.INPUTS[name]] for name in scalars]
        prefixes = [_raw(struct.calcsize(f"<{each}")) for each in formats]
        pairs = zip(prefixes, formats, strict=True)
        self._scalars = struct.Struct("<" + "".join(f"{len(p)}s{each}" for p, each in pairs))
        self._packed: list[bytes | float] = [each for p in prefixes for each in (p, 0)]
        """What `_scalars` packs: each scalar behind its prefix."""
        self._constants = b"".join(_field(_RAW, constant.raw) for constant in constants)

    def encode(
        self,
        number: str,
        ids: npt.NDArray[np.int32],
        scalars: Sequence[float] = (),
        texts: Sequence[str] = (),
    ) -> bytes:
        """The request with this id, or without one, these token ids and the values that vary."""
        raw_ids = ids.astype("<i4", copy=False).tobytes()
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


def generate_template(
    end_id: int,
    stop_words: Sequence[tuple[int, ...]],
    draw: Draw,
    *,
    guided: bool,
    flags: tuple[bool, bool] | None,
) -> RequestTemplate:
    """Samples. `flags` are whether tokens come one by one, and with their log-probabilities.

    Without flags, as a search sends them, they are answered once: the wire's default is off.
    """
    constants = [_constant("end_id", end_id), _constant("exclude_input_in_output", True)]
    outputs = ["output_ids", "sequence_length"]
    if flags is not None:
        names = ("streaming", "return_log_probs")
        given = [_constant(name, flag) for name, flag in zip(names, flags, strict=True)]
        constants = [constants[1], *given, constants[0]]
        outputs += ["output_log_probs"] * flags[1]
    if stop_words:
        layout = wire.encode_stop_words(stop_words)
        constants.append(Constant("stop_words_list", layout.tobytes(), (1, *layout.shape)))
    return RequestTemplate(
        wire.GENERATOR,
        scalars=("input_lengths", "request_output_len", *_DRAWN_BY[draw]),
        constants=constants,
        texts=("guided_decoding_guide_type", "guided_decoding_guide") if guided else (),
        outputs=outputs,
    )


def score_template() -> RequestTemplate:
    """Chains whose last step the verifier scores."""
    return RequestTemplate(
        wire.PRM,
        scalars=["input_lengths"],
        constants=[
            _constant("request_output_len", 1),
            _constant("return_generation_logits", True),
        ],
        outputs=["score"],
    )


def stop_request(number: str) -> bytes:
    """What stops the sample of this id. The lengths mean nothing; the model requires them."""
    message = service_pb2.ModelInferRequest(model_name=wire.GENERATOR, id=number)
    return _by_hand(message, input_lengths=1, request_output_len=1, stop=True)


def reset_request(model: str, number: str = "") -> bytes:
    """A request for one token that finds an empty cache, as the first one of a server does."""
    message = service_pb2.ModelInferRequest(model_name=model, id=number)
    message.parameters[wire.RESET_PREFIX_CACHE].bool_param = True
    logits = {"return_generation_logits": True} if model == wire.PRM_ENGINE else {}
    return _by_hand(message, input_ids=0, input_lengths=1, request_output_len=1, **logits)


def _by_hand(message: service_pb2.ModelInferRequest, **scalars: int) -> bytes:
    for name, value in scalars.items():
        message.inputs.add(name=name, datatype=wire.INPUTS[name], shape=[1, 1])
        message.raw_input_contents.append(wire.scalar(name, value).tobytes())
    data: bytes = message.SerializeToString()
    return data


def _constant(name: str, value: int) -> Constant:
    return Constant(name, wire.scalar(name, value).tobytes())


@lru_cache(maxsize=4096)
def _ids_input(length: int) -> bytes:
    return _input("input_ids", (1, length))


def _input(name: str, shape: Sequence[int]) -> bytes:
    datatype, sizes = wire.INPUTS[name].encode(), b"".join(map(_varint, shape))
    tensor = _field(_NAME, name.encode()) + _field(_DATATYPE, datatype) + _field(_SHAPE, sizes)
    return _field(_INPUTS, tensor)


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
