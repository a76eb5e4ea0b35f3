"""The wire contract as values: model names, tensors and the layout of stop words.

Pure: no engine, no server. Client and server both import this module, so they cannot disagree. The
names, types and shapes are those of TensorRT-LLM's `tensorrt_llm` model; every tensor on the wire
has a leading batch dimension, and scalars are [1, 1].

Requests to TensorRT-LLM have one row. A request to the engine host of target openvino with the
parameter `first_row` may have several, each with a prompt, lengths and a seed of its own. They are
answered as they finish, together where they finish together, and each answer says by the output
`batch_index` which rows it holds. A row that fails has its text in the output `error`, and the
others are answered.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from enum import Enum
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from tts.base.errors import RequestError

GENERATOR = "generator"
PRM = "prm"
PRM_ENGINE = "prm_engine"
PRM_SCORE = "prm_score"
"""On target tensorrt `prm` is an ensemble of these two; on openvino one model."""

RESET_PREFIX_CACHE = "reset_prefix_cache"
"""Parameter of a request to the engine host: the prefix cache is emptied before it is computed."""

FIRST_ROW = "first_row"
"""Parameter of a request by rows: the number of its first one.

A client numbers all of its rows. A row has the id `CLIENT-NUMBER`, by which it can be stopped, a
request the id `CLIENT-NUMBER+` with the number of its first. An answer to a request may hold rows
of the client's earlier ones: all are answered by its latest.
"""

EBNF, JSON_SCHEMA = "ebnf_grammar", "json_schema"
"""The kinds of guides, as TensorRT-LLM's backend names them. A grammar can describe free text
around an answer. A structural tag, which its executor knows, has no name there
(getGuidedDecodingParamsFromTensors).
"""


class Guide(NamedTuple):
    """What the whole text of an output obeys."""

    kind: str
    """EBNF or JSON_SCHEMA."""
    text: str


class Failure(Enum):
    """Why a request has no answer; the value travels in front of the sentence that says so.

    A gRPC stream carries nothing of an error but its text.
    """

    REFUSED = "refused"
    """Refused for what it asks: it would be refused again."""
    UNAVAILABLE = "unavailable"
    """Failed by the state of the engine or its process: asking again may help."""
    CANCELLED = "cancelled"
    """Cancelled by its client, or by a stop request of any client."""
    IN_USE = "in_use"
    """It asks for an empty prefix cache while the engine holds other requests."""


_FAILED = re.compile(r"(?P<path>(?:in ensemble '[^']*', )?)\[(?P<failure>[a-z_]+)\] ")
_FAILURES = {failure.value: failure for failure in Failure}


def encode_failure(failure: Failure, sentence: str) -> str:
    """The text of an error on the wire, of which `decode_failure` reads both again."""
    return f"[{failure.value}] {sentence}"


def decode_failure(text: str) -> tuple[Failure | None, str]:
    """What an error on the wire means, and its sentence; None if no engine of ours wrote it."""
    match = _FAILED.match(text)  # only in front: a sentence may quote what a client has sent
    failure = _FAILURES.get(match["failure"]) if match else None
    if match is None or failure is None:
        return None, text
    return failure, match["path"] + text[match.end() :]


NO_END_ID = -1
"""The end_id that means none: only a stop word or the length ends the output."""

DTYPES: dict[str, np.dtype[Any]] = {
    "INT32": np.dtype(np.int32),
    "UINT64": np.dtype(np.uint64),
    "FP32": np.dtype(np.float32),
    "BOOL": np.dtype(np.bool_),
    "BYTES": np.dtype(np.object_),  # texts; TYPE_STRING in a model's configuration
}

INPUTS: dict[str, str] = {
    "input_ids": "INT32",  # [1, N]; of several rows [B, longest], and so are all others
    "input_lengths": "INT32",
    "request_output_len": "INT32",
    "end_id": "INT32",
    "pad_id": "INT32",
    "stop_words_list": "INT32",  # [1, 2, M]
    "beam_width": "INT32",
    "num_return_sequences": "INT32",
    "temperature": "FP32",
    "runtime_top_k": "INT32",
    "runtime_top_p": "FP32",
    "seed": "UINT64",
    "return_log_probs": "BOOL",
    "return_generation_logits": "BOOL",
    "return_context_logits": "BOOL",
    "return_perf_metrics": "BOOL",
    "exclude_input_in_output": "BOOL",
    "stop": "BOOL",
    "streaming": "BOOL",
    "min_tokens": "INT32",
    "repetition_penalty": "FP32",
    "presence_penalty": "FP32",
    "frequency_penalty": "FP32",
    "bad_words_list": "INT32",  # [1, 2, M]
    "embedding_bias": "FP32",  # [1, V]
    "guided_decoding_guide_type": "BYTES",
    "guided_decoding_guide": "BYTES",
}
"""Inputs that both targets declare. Those without a shape beside them are scalars, [1, 1]."""

HOST_INPUTS: dict[str, str] = {"min_p": "FP32"}
"""Inputs that the engine host of target openvino declares besides, scalars."""

OUTPUTS: dict[str, str] = {
    "output_ids": "INT32",  # [1, 1, T]
    "sequence_length": "INT32",  # [1, 1]
    "cum_log_probs": "FP32",  # [1, 1]
    "output_log_probs": "FP32",  # [1, 1, T]
    "generation_logits": "FP32",  # [1, 1, request_output_len, V]
}
"""Outputs of the engine models; the last three only when the request asks for them."""

BATCH_INDEX = "batch_index"
ERROR = "error"
ROW_OUTPUTS: dict[str, str] = {
    BATCH_INDEX: "INT32",  # [R, 1]
    ERROR: "BYTES",  # [R, 1], if one of these rows has failed; empty for the others
}
"""Further outputs of ours for requests by rows: which rows an answer holds, and what they lack."""

SCORE_OUTPUTS: dict[str, str] = {"score": "FP32", "label_logits": "FP32"}
"""Outputs of `prm`: the probability of the positive label [1, 1], and the label logits [1, n]."""


def scalar(name: str, value: int | float | bool) -> npt.NDArray[Any]:
    """The [1, 1] tensor of a scalar input, in the type that the contract gives it."""
    return np.array([[value]], dtype=DTYPES[(INPUTS | HOST_INPUTS)[name]])


def row_id(client_id: str, number: int) -> str:
    """The id of a client's row, or of a request by itself."""
    return f"{client_id}-{number}"


def rows_id(client_id: str, first: int) -> str:
    """The id of a request for a client's rows from this number on."""
    return f"{client_id}-{first}+"


def encode_text(text: str) -> bytes:
    """A text as the raw content of a [1, 1] input: its length in four bytes, then its UTF-8."""
    data = text.encode()
    return len(data).to_bytes(4, "little") + data


def decode_texts(data: bytes) -> list[str]:
    """The texts of a tensor from its raw content, one after another as `encode_text` has them."""
    texts, start = [], 0
    while start < len(data):
        body = start + 4
        start = body + int.from_bytes(data[start:body], "little")
        texts.append(data[body:start].decode())
    return texts


def encode_stop_words(words: Sequence[Sequence[int]]) -> npt.NDArray[np.int32]:
    """Lay out stop words as int32 [2, M]: ids one after another, over their end offsets.

    Row 0 is padded with 0 and row 1 with -1; no words at all give M = 0. Raises ValueError on an
    empty word, and on an id that is none: numpy 1 would cut it to 32 bits.
    """
    if any(len(word) == 0 for word in words):
        raise ValueError("a stop word has no tokens")
    ids = [token for word in words for token in word]
    if ids and not 0 <= min(ids) <= max(ids) < 2**31:
        raise ValueError(f"a stop word has the id {min(ids) if min(ids) < 0 else max(ids)}")
    ends = np.cumsum([len(word) for word in words], dtype=np.int32)
    table = np.full((2, len(ids)), -1, dtype=np.int32)
    table[0] = ids
    table[1, : len(ends)] = ends
    return table


def decode_stop_words(table: npt.NDArray[np.int32]) -> tuple[tuple[int, ...], ...]:
    """Read stop words back from int32 [2, M] (or [1, 2, M], as on the wire).

    Raises RequestError naming what is wrong with the layout.
    """
    if table.dtype != np.int32:
        raise RequestError(f"stop_words_list must be INT32, not {table.dtype}")
    if table.size % 2:
        raise RequestError(
            f"stop_words_list has {table.size} elements; it must have two rows of equal length"
        )
    rows = table[0] if table.ndim == 3 and len(table) == 1 else table
    if rows.ndim != 2 or len(rows) != 2:
        raise RequestError(f"stop_words_list must have shape [1, 2, M], not {list(table.shape)}")
    return _decode(rows.tobytes())


@lru_cache(maxsize=8)  # a search sends the same words with every request; a list may take 4 MB
def _decode(data: bytes) -> tuple[tuple[int, ...], ...]:
    row_ids, row_ends = np.frombuffer(data, dtype=np.int32).reshape(2, -1).tolist()
    words: list[tuple[int, ...]] = []
    start = 0
    for index, end in enumerate(row_ends):
        if end == -1:
            if any(rest != -1 for rest in row_ends[index:]):
                raise RequestError("stop_words_list has an offset after the padding of row 1")
            break
        if end > len(row_ids):
            raise RequestError(
                f"stop_words_list has the offset {end}, beyond its {len(row_ids)} token ids"
            )
        if end <= start:
            raise RequestError(
                f"stop_words_list has the offset {end} at position {index}; offsets must be "
                "positive and increasing, for a stop word has at least one token"
            )
        words.append(tuple(row_ids[start:end]))
        start = end
    return tuple(words)
