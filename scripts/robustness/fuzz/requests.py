"""A ModelInferRequest, made hostile by a seed: names, types, shapes, contents and parameters."""

from __future__ import annotations

import random
import struct
from collections.abc import Callable
from typing import Any

import numpy as np
from tritonclient.grpc import service_pb2

from tts.engines import wire

PROMPT = tuple(range(10, 40))
LONG = 1_000_000
"""Bytes of a long tensor: enough to hurt if it were kept, few enough to send thousands."""
INTEGERS = (0, 1, -1, 2, 7, 127, 255, 10**6, 2**31 - 1, -(2**31), 2**31, 2**62, 2**63 - 1, -(2**63))
FLOATS = (0.0, -0.0, 1.0, -1.0, 1e-45, 3.4e38, float("nan"), float("inf"), float("-inf"))
TEXTS = ("", "x", "input_ids", "../../etc/passwd", "a\0b", "é\U0001f600", "%s%n", "a" * 100_000)
TYPES = ("INT32", "INT64", "UINT8", "UINT64", "FP16", "BF16", "FP32", "FP64", "BOOL", "BYTES", "",
         "int32", "TYPE_INT32", "INVALID", "x" * 1000)  # fmt: skip
VERSIONS = ("1", "-1", "0", "99", "latest", "1 ", "9" * 30)
MODELS = (wire.GENERATOR, wire.PRM)
PARAMETERS = (
    "sequence_id", "sequence_start", "sequence_end", "priority", "timeout", "binary_data_output",
    "triton_enable_empty_final_response", "triton_final_response", "headers", "classification",
    "shared_memory_region", "shared_memory_byte_size", "shared_memory_offset", "correlation_id",
    "content_type", "binary_data_size", "first_row", "nonsense", "",
)  # fmt: skip
Change = Callable[[Any, random.Random], None]


def valid(model: str, number: int = 0) -> Any:
    """A request that a model answers; `number` is its seed."""
    request = service_pb2.ModelInferRequest(model_name=model)
    tensors: dict[str, Any] = {
        "input_ids": np.array([PROMPT], np.int32),
        "input_lengths": wire.scalar("input_lengths", len(PROMPT)),
        "request_output_len": wire.scalar("request_output_len", 1),
    }
    if model == wire.GENERATOR:
        tensors["request_output_len"] = wire.scalar("request_output_len", 8)
        tensors |= {"runtime_top_p": wire.scalar("runtime_top_p", 1.0)}
        tensors |= {"seed": wire.scalar("seed", number)}
    else:
        tensors["return_generation_logits"] = wire.scalar("return_generation_logits", True)
    for name, tensor in tensors.items():
        add(request, name, tensor)
    return request


def add(request: Any, name: str, tensor: Any) -> None:
    """Give a request one more input."""
    datatypes = {dtype: datatype for datatype, dtype in wire.DTYPES.items()}
    request.inputs.add(name=name, datatype=datatypes[tensor.dtype], shape=tensor.shape)
    request.raw_input_contents.append(tensor.tobytes())


def hostile(model: str, rng: random.Random) -> Any:
    """A request to a model after one to four changes drawn from `rng`."""
    request = valid(model, rng.randrange(2**32))
    for _ in range(rng.choice((1, 1, 2, 3, 4))):
        rng.choice(CHANGES)(request, rng)
    return request


def set_parameter(parameters: Any, rng: random.Random) -> None:
    """Set a parameter of a request, an input or an output to a value of any kind."""
    parameter = parameters[rng.choice(PARAMETERS)]
    values = {
        "bool_param": rng.random() < 0.5,
        "int64_param": _int64(rng),
        "string_param": rng.choice(TEXTS),
        "bytes_param": b"\xff\xfe",
        "double_param": rng.choice(FLOATS),
        "uint64_param": abs(_int64(rng)),
    }
    kind = rng.choice([field.name for field in parameter.DESCRIPTOR.fields])
    setattr(parameter, kind, values[kind])


def _int64(rng: random.Random) -> int:
    return rng.choice(INTEGERS)


def _an_input(request: Any, rng: random.Random) -> Any:
    return rng.choice(request.inputs) if request.inputs else request.inputs.add(name="input_ids")


def change_a_shape(request: Any, rng: random.Random) -> None:
    """An input says another shape than it has."""
    shape = _an_input(request, rng).shape
    match rng.randrange(4):
        case 0 if shape:
            shape[rng.randrange(len(shape))] = _int64(rng)
        case 1:
            shape.append(_int64(rng))
        case 2 if shape:
            shape.pop()
        case _:
            shape.extend([1] * rng.choice((1, 10, 10_000)))


def change_a_type(request: Any, rng: random.Random) -> None:
    """An input says another type than it has."""
    _an_input(request, rng).datatype = rng.choice(TYPES)


def rename_an_input(request: Any, rng: random.Random) -> None:
    """An input has another name, or that of another."""
    _an_input(request, rng).name = rng.choice((*TEXTS, *wire.INPUTS))


def drop_an_input(request: Any, rng: random.Random) -> None:
    """An input is missing."""
    if request.inputs:
        place = rng.randrange(len(request.inputs))
        del request.inputs[place]
        if rng.random() < 0.7:
            del request.raw_input_contents[place : place + 1]


def double_an_input(request: Any, rng: random.Random) -> None:
    """An input comes twice."""
    if request.inputs:
        place = rng.randrange(len(request.inputs))
        request.inputs.append(request.inputs[place])
        if place < len(request.raw_input_contents):
            request.raw_input_contents.append(request.raw_input_contents[place])


def change_a_size(request: Any, rng: random.Random) -> None:
    """Contents of another size than the shape says, too few of them or too many."""
    contents = request.raw_input_contents
    if not contents or rng.random() < 0.2:
        contents.append(bytes(rng.choice((0, 1, 4, 1000))))
        return
    place = rng.randrange(len(contents))
    data = contents[place]
    more = data * rng.choice((2, 1000)) if len(data) < 10_000 else data + b"\0"
    contents[place] = rng.choice((b"", data[:-1], data[:1], data + b"\0", more))


def change_contents(request: Any, rng: random.Random) -> None:
    """Other values of the right size: extremes and not-a-numbers among them."""
    contents = request.raw_input_contents
    if not contents:
        return
    place = rng.randrange(len(contents))
    size = len(contents[place])
    value = rng.choice(
        (
            *(struct.pack("<i", number) for number in INTEGERS if -(2**31) <= number < 2**31),
            *(struct.pack("<f", number) for number in FLOATS),
            *(struct.pack("<q", number) for number in INTEGERS if -(2**63) <= number < 2**63),
            rng.randbytes(max(1, size)),
        )
    )
    contents[place] = (value * (size // len(value) + 1))[:size]


def long_input(request: Any, rng: random.Random) -> None:
    """A long tensor, whose contents are there."""
    name = rng.choice(("input_ids", "stop_words_list", "bad_words_list", "embedding_bias"))
    count = rng.choice((300, 5000, LONG // 4))
    for place, tensor in enumerate(request.inputs):
        if tensor.name == name and place < len(request.raw_input_contents):
            del request.inputs[place]
            del request.raw_input_contents[place]
            break
    rows = 2 if name.endswith("words_list") else 1
    values: Any = np.full(
        (1, rows, count // rows) if rows > 1 else (1, count), rng.randrange(1, 99)
    )
    if name == "stop_words_list" and rng.random() < 0.7:
        values[0, 1] = np.arange(1, count // rows + 1)  # as many words as ids
    add(request, name, values.astype(wire.DTYPES[wire.INPUTS[name]]))
    if name == "input_ids" and rng.random() < 0.5:
        for place, tensor in enumerate(request.inputs):
            if tensor.name == "input_lengths" and place < len(request.raw_input_contents):
                request.raw_input_contents[place] = struct.pack("<i", count)


def typed_contents(request: Any, rng: random.Random) -> None:
    """Values in the fields of InferTensorContents, in place of the raw ones or beside them."""
    contents = _an_input(request, rng).contents
    number = rng.choice((1, 2, 30, 10_000))
    match rng.randrange(6):
        case 0:
            contents.int_contents.extend([rng.randrange(100)] * number)
        case 1:
            contents.int64_contents.extend([_int64(rng)] * number)
        case 2:
            contents.fp32_contents.extend([rng.choice(FLOATS)] * number)
        case 3:
            contents.bool_contents.extend([True] * number)
        case 4:
            contents.bytes_contents.extend([b"\xff\xfe"] * number)
        case _:
            contents.fp64_contents.extend([rng.choice(FLOATS)] * number)
    if rng.random() < 0.5:
        del request.raw_input_contents[:]


def text_tensor(request: Any, rng: random.Random) -> None:
    """BYTES, whose elements carry their own length, with lengths that are not theirs."""
    tensor = request.inputs.add(
        name=rng.choice((*wire.INPUTS, "text_input")), datatype="BYTES", shape=[1, 1]
    )
    tensor.shape[1] = rng.choice((1, 1, 2, 1000))
    said = rng.choice((0, 3, 2**31 - 1, 2**32 - 1))
    text = rng.choice((b"abc", b"\xff\xfe\xfd", "é".encode("utf-16"), b"\xed\xa0\x80", b"\0" * 3))
    request.raw_input_contents.append(struct.pack("<I", said) + text)


def scalar_input(request: Any, rng: random.Random) -> None:
    """An optional input with a value that may be out of bounds."""
    name = rng.choice(list(wire.INPUTS))
    dtype = wire.DTYPES[wire.INPUTS[name]]
    value = rng.choice(FLOATS if dtype.kind == "f" else (0, 1, 2, 7, 255, 2**31 - 1))
    add(
        request, name, np.full(rng.choice(((1, 1), (1, 1), (1,), (2, 1), (1, 0), ())), value, dtype)
    )


def change_outputs(request: Any, rng: random.Random) -> None:
    """Outputs are asked for that there are not, or very many."""
    for _ in range(rng.choice((1, 2, 5, 1000))):
        names = (*wire.OUTPUTS, *wire.SCORE_OUTPUTS, *TEXTS)
        output = request.outputs.add(name=rng.choice(names[:-1]))
        if rng.random() < 0.3:
            set_parameter(output.parameters, rng)


def change_parameters(request: Any, rng: random.Random) -> None:
    """The request or an input has parameters of any kind."""
    for _ in range(rng.choice((1, 2, 3))):
        holder = request if rng.random() < 0.6 else _an_input(request, rng)
        set_parameter(holder.parameters, rng)


def change_the_id(request: Any, rng: random.Random) -> None:
    """The request has an odd id, or that of others."""
    request.id = rng.choice((*TEXTS, "same", "same"))


def change_the_version(request: Any, rng: random.Random) -> None:
    """The request asks for another version of the model."""
    request.model_version = rng.choice(VERSIONS)


def change_the_model(request: Any, rng: random.Random) -> None:
    """The request asks for a model that there is not."""
    request.model_name = rng.choice(TEXTS)


CHANGES: tuple[Change, ...] = (
    change_a_shape,
    change_a_type,
    rename_an_input,
    drop_an_input,
    double_an_input,
    change_a_size,
    change_contents,
    change_contents,
    long_input,
    typed_contents,
    text_tensor,
    scalar_input,
    scalar_input,
    change_outputs,
    change_parameters,
    change_parameters,
    change_the_id,
    change_the_version,
    change_the_model,
)
