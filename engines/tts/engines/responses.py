"""A response of an engine and its output tensors; callbacks, and the end of a model's process."""

from __future__ import annotations

import logging
import os
import signal
from collections.abc import Callable, Sequence
from typing import Any, Literal

import msgspec
import numpy as np
import numpy.typing as npt

from tts.base.errors import RequestError

from . import wire
from .generate_request import GenerateRequest
from .request_tensors import Tensors
from .wire import Failure

FinishReason = Literal["length", "stop", "end_id", "cancelled"]

ENGINE_DIED = 70
"""Exit status of a Triton model whose engine has died."""
logger = logging.getLogger(__name__)


class Response(msgspec.Struct, array_like=True, frozen=True):
    """One response to a request: tokens, or the reason why there are none."""

    token_ids: list[int]
    """New tokens since the previous response: all of them unless the request streams."""
    log_probs: list[float] | None = None
    """Natural log-probabilities of all tokens so far, of the raw distribution."""
    label_logits: tuple[float, ...] | None = None
    """Normalised logits of the verifier's label rows."""
    finish_reason: FinishReason | None = None
    """None while more responses follow."""
    error: str | None = None
    """Why the request failed; never empty."""
    failure: Failure = Failure.REFUSED
    """The kind of failure, if it failed."""

    @property
    def final(self) -> bool:
        """Whether this is the request's last response."""
        return self.finish_reason is not None or self.error is not None


def failure_of(response: Response) -> tuple[Failure, str] | None:
    """The kind and text of a failed response; None if it is an answer."""
    if response.error is not None:
        return response.failure, response.error
    if response.finish_reason == "cancelled":
        # by its client, or by a stop request of any client: never taken for a whole answer
        return Failure.CANCELLED, "the request was cancelled"
    return None


OnResponse = Callable[[Response], None]


def unavailable(reason: str) -> Response:
    """The response to a request that may well be answered when it is sent again."""
    return Response([], error=reason, failure=Failure.UNAVAILABLE)


CLOSING = unavailable("the engine is shutting down")
"""The response to requests that are left when it does."""
IN_USE = Response([], error="the prefix cache is in use by other requests", failure=Failure.IN_USE)
"""The response to a request that would empty it."""


def guarded(function: Callable[..., None], *arguments: object) -> None:
    """Call a callback of an engine; its errors are logged and go no further."""
    try:
        function(*arguments)
    except Exception:
        logger.exception("a callback of the engine failed")


def how_it_ended(status: int) -> str:
    """How an engine's process ended, from the exit status that `subprocess` gives."""
    if status < 0:
        return f"was killed by {signal.Signals(-status).name}"
    return f"ended with exit status {status}"


def end_process() -> None:
    """End a model's process whose engine has died, which Triton's health shows."""
    os._exit(ENGINE_DIED)


def score_tensors(response: Response) -> dict[str, npt.NDArray[Any]]:
    """The score of a verifier's answer, and its parts; RequestError if it has none."""
    if response.label_logits is None:
        raise RequestError("return_generation_logits is false; a score is made of them: send true")
    score = first_probability(response.label_logits)
    logits = np.array([response.label_logits], dtype=np.float32)
    return {"score": np.array([[score]], dtype=np.float32), "label_logits": logits}


def first_probability(logits: Sequence[float]) -> float:
    """The softmax of the first logit, in the arithmetic of the `prm_score` model: equal bit by bit.

    Raises RequestError for logits that are not finite.
    """
    row = np.array(logits, np.float32)
    if not np.isfinite(row).all():
        raise RequestError(f"the label logits are not finite: {row.tolist()}")
    exponentials = np.exp(row - row.max(), dtype=np.float32)
    return float(exponentials[0] / exponentials.sum())


def row_tensors(rows: Sequence[tuple[int, Tensors | str]]) -> dict[str, npt.NDArray[Any]]:
    """The output tensors of rows that are answered together: numbers, and tensors or an error.

    Outputs that are shorter than others, or missing because of an error, are padded with zeros.
    """
    numbers = np.array([[number] for number, _ in rows], dtype=np.int32)
    tensors: dict[str, npt.NDArray[Any]] = {wire.BATCH_INDEX: numbers}
    answers = [answer for _, answer in rows if not isinstance(answer, str)]
    for name, first in (answers[0] if answers else {}).items():
        longest = max(answer[name].shape[-1] for answer in answers)
        padded = np.zeros((len(rows), *first.shape[1:-1], longest), first.dtype)
        for row, (_, answer) in zip(padded, rows, strict=True):
            if not isinstance(answer, str):
                row[..., : answer[name].shape[-1]] = answer[name][0]
        tensors[name] = padded
    if len(answers) < len(rows):
        errors = [[answer.encode() if isinstance(answer, str) else b""] for _, answer in rows]
        tensors[wire.ERROR] = np.array(errors, dtype=np.object_)
    return tensors


def response_tensors(request: GenerateRequest, response: Response) -> dict[str, npt.NDArray[Any]]:
    """The output tensors of a response without error, each with its leading batch dimension."""
    ids = response.token_ids
    if not (request.exclude_input or request.streaming):  # streaming never returns the prompt
        ids = [*request.input_ids.tolist(), *ids]
    tensors: dict[str, npt.NDArray[Any]] = {
        "output_ids": np.array(ids, dtype=np.int32).reshape(1, 1, -1),
        "sequence_length": np.array([[len(ids)]], dtype=np.int32),
    }
    if request.return_log_probs:
        log_probs = np.array(response.log_probs, dtype=np.float32)
        tensors["output_log_probs"] = log_probs.reshape(1, 1, -1)
        tensors["cum_log_probs"] = log_probs.sum(dtype=np.float32).reshape(1, 1)
    if response.label_logits is not None:
        logits = np.array(response.label_logits, dtype=np.float32)
        tensors["generation_logits"] = logits.reshape(1, 1, 1, -1)
    return tensors
