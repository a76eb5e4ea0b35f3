"""From tensors to a validated request. Pure.

The pipeline accepts invalid input without an error (ids outside the vocabulary, NaN, prompts that
are too long) and then fails other requests as well, so every request passes here first. A declared
tensor that would change the result and is not supported is refused, never ignored.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from tts.base.errors import RequestError

from . import wire
from .generate_request import (
    MAX_GUIDE_BYTES,
    MAX_STOP_WORD_IDS,
    EngineLimits,
    GenerateRequest,
    Sequences,
    check_request,
    foreign_stop_word,
    is_in_vocabulary,
)

Tensors = Mapping[str, npt.NDArray[Any]]

REQUIRED = ("input_ids", "input_lengths", "request_output_len")
# Declared because a TensorRT-LLM client may send them; accepted only where they change nothing.
NEUTRAL: dict[str, int | float | bool] = {
    "beam_width": 1,
    "num_return_sequences": 1,
    "return_context_logits": False,
    "return_perf_metrics": False,
}
EMPTY = ("bad_words_list", "embedding_bias")
_INPUTS = wire.INPUTS | wire.HOST_INPUTS
_FIELDS = {
    "end_id": "end_id",
    "temperature": "temperature",
    "runtime_top_p": "top_p",
    "runtime_top_k": "top_k",
    "seed": "seed",
    "return_log_probs": "return_log_probs",
    "return_generation_logits": "return_generation_logits",
    "streaming": "streaming",
    "exclude_input_in_output": "exclude_input",
    "min_tokens": "min_tokens",
    "repetition_penalty": "repetition_penalty",
    "min_p": "min_p",
    "presence_penalty": "presence_penalty",
    "frequency_penalty": "frequency_penalty",
}
"""Scalar tensors, and the fields of a request that they are."""


def is_stop(tensors: Tensors) -> bool:
    """Whether this request asks to stop the running request of the same id."""
    return bool(_scalar(tensors, "stop", False))


def rows_of(tensors: Tensors) -> Sequence[Tensors]:
    """The tensors of each row of a request by rows, its prompt without what pads it.

    Raises RequestError for tensors that differ in their number of rows.
    """
    counts = {name: len(tensor) if tensor.ndim else 0 for name, tensor in tensors.items()}
    if len(set(counts.values())) > 1:
        raise RequestError(f"the tensors differ in their number of rows: {counts}")
    count = max(counts.values(), default=0)
    rows = [{name: each[row : row + 1] for name, each in tensors.items()} for row in range(count)]
    ids, lengths = tensors.get("input_ids"), tensors.get("input_lengths")
    if ids is not None and lengths is not None and lengths.size == count:
        for row, length in zip(rows, lengths.ravel().tolist(), strict=True):
            if 0 <= length < ids.shape[-1]:  # what it cannot be is refused with its row
                row["input_ids"] = row["input_ids"][..., : int(length)]
    return rows


def parse_request(tensors: Tensors, limits: EngineLimits) -> GenerateRequest:
    """Read one request's tensors by the contract and check it against the engine's limits.

    Raises RequestError with one sentence that names the tensor and what is allowed.
    """
    for name in tensors:
        if name not in _INPUTS:
            raise RequestError(f"{name} is not supported by this engine; leave it out")
    for name in REQUIRED:
        if name not in tensors:
            raise RequestError(f"{name} is required")
    _refuse_unsupported(tensors)
    prompt = _prompt(tensors)
    fields = {
        name: _scalar(tensors, tensor) for tensor, name in _FIELDS.items() if tensor in tensors
    }
    if fields.get("end_id") == wire.NO_END_ID:
        del fields["end_id"]
    room = limits.max_seq_len - len(prompt)
    request = GenerateRequest(
        input_ids=prompt,
        max_new_tokens=min(_scalar(tensors, "request_output_len"), room),
        stop_words=_stop_words(tensors, limits),
        guide=_guide(tensors),
        **fields,
    )
    check_request(request, limits)
    return request


def _refuse_unsupported(tensors: Tensors) -> None:
    for name, tensor in tensors.items():
        if name in NEUTRAL:
            value, neutral = _scalar(tensors, name), NEUTRAL[name]
            if value != neutral:
                raise RequestError(f"{name} is {value}; this engine supports only {neutral}")
        elif name in EMPTY and tensor.size and not _means_none(tensor):
            raise RequestError(f"{name} is not supported by this engine; leave it out")


def _means_none(tensor: npt.NDArray[Any]) -> bool:
    return tensor.ndim == 3 and tensor.ravel().tolist() == [0, -1]  # [[[0], [-1]]]: no words


def _prompt(tensors: Tensors) -> npt.NDArray[np.int64]:
    ids = tensors["input_ids"]
    _check_dtype("input_ids", ids)
    if ids.ndim != 2 or len(ids) != 1:
        raise RequestError(
            f"input_ids has shape {list(ids.shape)}; it must be [1, N] (one request per prompt)"
        )
    declared = _scalar(tensors, "input_lengths")
    if ids.size and declared != ids.size:
        raise RequestError(f"input_lengths is {declared} but input_ids has {ids.size} tokens")
    prompt: npt.NDArray[np.int64] = ids[0].astype(np.int64)
    return prompt


def _stop_words(tensors: Tensors, limits: EngineLimits) -> Sequences:
    table = tensors.get("stop_words_list")
    if table is None:
        return ()
    if table.size > 2 * MAX_STOP_WORD_IDS:
        raise RequestError(
            f"stop_words_list has {table.size // 2} ids; at most {MAX_STOP_WORD_IDS} are allowed"
        )
    words = wire.decode_stop_words(table)
    if words and not is_in_vocabulary(table[..., 0, :], limits):
        raise foreign_stop_word(limits)
    return words


def _guide(tensors: Tensors) -> wire.Guide | None:
    kind, guide = (
        _text(tensors, name) for name in ("guided_decoding_guide_type", "guided_decoding_guide")
    )
    if kind is None and guide is None:
        return None
    if kind is None or guide is None:
        raise RequestError("guided_decoding_guide_type and guided_decoding_guide go together")
    return wire.Guide(kind, guide)


def _text(tensors: Tensors, name: str) -> str | None:
    data = _scalar(tensors, name)
    if data is None:
        return None
    if len(data) > MAX_GUIDE_BYTES:
        raise RequestError(f"{name} has {len(data)} bytes; at most {MAX_GUIDE_BYTES} are allowed")
    try:
        return data.decode() if isinstance(data, bytes) else str(data)
    except UnicodeDecodeError as error:
        raise RequestError(f"{name} is not UTF-8 at byte {error.start}") from None


def _scalar(tensors: Tensors, name: str, default: Any = None) -> Any:
    tensor = tensors.get(name)
    if tensor is None:
        return default
    _check_dtype(name, tensor)
    if tensor.size != 1:
        raise RequestError(
            f"{name} has shape {list(tensor.shape)}; it must be [1, 1] (one request per prompt)"
        )
    return tensor.item()


def _check_dtype(name: str, tensor: npt.NDArray[Any]) -> None:
    kind = _INPUTS[name]
    if tensor.dtype != wire.DTYPES[kind]:
        raise RequestError(f"{name} must be {kind}, not {tensor.dtype}")
