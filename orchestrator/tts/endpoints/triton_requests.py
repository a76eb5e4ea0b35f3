"""Inference requests as bytes: Triton's ModelInferRequest, made from a template. Pure.

Of a search's requests only the id, the token ids and a few scalars differ, so everything else is
encoded once: protobuf's encoding of a message is that of its parts, one behind the other. The parts
stand in the order of the fields, and the order of tensors is part of what the tests pin.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal, NamedTuple

import numpy as np
import numpy.typing as npt
from tritonclient.grpc.service_pb2 import ModelInferRequest

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
        self._tensors = [
            *((name, (1,)) for name in scalars),
            *((constant.name, constant.shape) for constant in constants),
            *((name, (1,)) for name in texts),
        ]
        """Names, and the shapes of one row, of the inputs but `input_ids`."""
        self._outputs = tuple(outputs)
        self._formats = [_FORMATS[wire.INPUTS[name]] for name in scalars]
        self._constants = [constant.raw for constant in constants]
        self._described = lru_cache(maxsize=64)(self._describe)

    def encode(self, number: str, rows: Sequence[RequestRow], first: int | None = None) -> bytes:
        """The request with this id, or without one, for rows of this template.

        They are numbered from `first` on; None: it is one row, whose answer has no number.
        """
        count, lengths = len(rows), [len(row.ids) for row in rows]
        if count == 1:
            ids = rows[0].ids.astype("<i4", casting="safe", copy=False)[None]
        else:
            ids = np.zeros((count, max(lengths)), "<i4")
            for row, length, each in zip(ids, lengths, rows, strict=True):
                np.copyto(row[:length], each.ids, casting="safe")
        described, packs, constants = self._described(count, first is not None)
        scalars = zip(packs, zip(*(row.scalars for row in rows), strict=True), strict=True)
        texts = zip(*(row.texts for row in rows), strict=True)
        head = ModelInferRequest(model_name=self.model, id=number)
        if first is not None:
            head.parameters[wire.FIRST_ROW].int64_param = first
        contents = [
            ids.tobytes(),
            *(pack(*column) for pack, column in scalars),
            *constants,
            *(b"".join(map(wire.encode_text, column)) for column in texts),
        ]
        raw = ModelInferRequest(raw_input_contents=contents)
        parts = head.SerializeToString(), _ids_input(ids.shape), described, raw.SerializeToString()
        return b"".join(parts)

    def _describe(
        self, rows: int, numbered: bool
    ) -> tuple[bytes, list[Callable[..., bytes]], list[bytes]]:
        """What is the same for all requests of so many rows: tensors, packing, constants."""
        message = ModelInferRequest()
        for name, shape in self._tensors:
            datatype = (wire.INPUTS | wire.HOST_INPUTS)[name]
            message.inputs.add(name=name, datatype=datatype, shape=(rows, *shape))
        for name in (*self._outputs, *(wire.ROW_OUTPUTS if numbered else ())):
            message.outputs.add(name=name)
        packs = [struct.Struct(f"<{rows}{each}").pack for each in self._formats]
        return message.SerializeToString(), packs, [raw * rows for raw in self._constants]


@lru_cache(maxsize=4096)
def _ids_input(shape: tuple[int, ...]) -> bytes:
    message = ModelInferRequest()
    message.inputs.add(name="input_ids", datatype="INT32", shape=shape)
    encoded: bytes = message.SerializeToString()
    return encoded


class RequestRow(NamedTuple):
    """A request to a model, by itself or as a row of one."""

    template: RequestTemplate
    ids: npt.NDArray[np.int32]
    scalars: Sequence[float]
    texts: Sequence[str] = ()

    def encode(self, number: str) -> bytes:
        """The request with this id, or without one, for this row alone."""
        return self.template.encode(number, [self])


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

    `flags` are whether tokens come one by one, and with their log-probabilities; without flags, as
    a search sends them, they are answered once. `shaping` are inputs of HOST_SHAPING with their
    values.
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
    message = ModelInferRequest(model_name=model, id=number)
    return _by_hand(message, input_lengths=1, request_output_len=1, stop=True)


def reset_request(model: str, number: str = "", *, scored: bool = False) -> bytes:
    """A request for one token that finds an empty cache; `scored`: the model gives scores alone."""
    message = ModelInferRequest(model_name=model, id=number)
    message.parameters[wire.RESET_PREFIX_CACHE].bool_param = True
    logits = {"return_generation_logits": True} if scored else {}
    return _by_hand(message, input_ids=0, input_lengths=1, request_output_len=1, **logits)


def _by_hand(message: ModelInferRequest, **scalars: int) -> bytes:
    for name, value in scalars.items():
        message.inputs.add(name=name, datatype=wire.INPUTS[name], shape=[1, 1])
        message.raw_input_contents.append(wire.scalar(name, value).tobytes())
    data: bytes = message.SerializeToString()
    return data


def _constant(name: str, value: float) -> Constant:
    return Constant(name, wire.scalar(name, value).tobytes())
