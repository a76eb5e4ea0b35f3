"""What a model says of the tokens of a text: their log-probabilities, and the likeliest tokens.

The pipeline gives those of drawn tokens alone, so the text goes through the model itself, which is
compiled a second time when that is first asked for. A long text is read in pieces, between which
the engine makes its steps.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import openvino as ov

from tts.build.manifest import EngineConfig
from tts.build.openvino.export import MODEL_FILE
from tts.build.openvino.runtime import plugin_properties

_MOST_LOGITS = 1 << 24
"""Logits that are held at a time, 64 MiB."""


class Reader:
    """The model, compiled once."""

    def __init__(self, engine_dir: Path, config: EngineConfig, threads: int, piece: int) -> None:
        """`piece` is how many tokens one step reads at most."""
        properties = plugin_properties(config.precision, threads)
        self._model = ov.Core().compile_model(engine_dir / MODEL_FILE, "CPU", properties)
        self.piece = max(1, min(piece, _MOST_LOGITS // config.vocab_size))

    def text(self, ids: npt.NDArray[np.int64], top: int) -> Reading:
        """A text that is read from its beginning."""
        return Reading(self._model.create_infer_request(), ids, top, self.piece)


class Reading:
    """One text while it is read."""

    def __init__(self, request: Any, ids: npt.NDArray[np.int64], top: int, piece: int) -> None:
        self._request = request
        self._ids = ids
        self._top = top
        self._piece = piece
        self._read = 0
        self.log_probs: list[float] = []
        """One for each token but the first, so far."""
        self.top: list[list[tuple[int, float]]] = []
        """The likeliest at the same places, by rank."""

    def advance(self) -> bool:
        """Read a piece; whether the text has ended."""
        start, last = self._read, len(self._ids) - 1
        end = min(start + self._piece, last)
        inputs = {
            "input_ids": self._ids[None, start:end],
            "attention_mask": np.ones((1, end), np.int64),
            "position_ids": np.arange(start, end)[None],
            "beam_idx": np.zeros(1, np.int32),
        }
        logits = self._request.infer(inputs)["logits"][0].astype(np.float64)
        shifted = logits - logits.max(axis=-1, keepdims=True)
        log_probs = shifted - np.log(np.exp(shifted).sum(axis=-1, keepdims=True))
        places = np.arange(end - start)
        self.log_probs += log_probs[places, self._ids[start + 1 : end + 1]].tolist()
        self.top += _likeliest(log_probs, self._top)
        self._read = end
        return end == last


def _likeliest(log_probs: npt.NDArray[np.float64], top: int) -> list[list[tuple[int, float]]]:
    """The likeliest tokens of each row; of equals the lower id first."""
    if not top:
        return [[] for _ in log_probs]
    ids = np.sort(np.argpartition(-log_probs, top - 1, axis=-1)[:, :top])
    found = np.take_along_axis(log_probs, ids, axis=-1)
    order = np.argsort(-found, axis=-1, kind="stable")
    ids, found = np.take_along_axis(ids, order, -1), np.take_along_axis(found, order, -1)
    return [list(zip(*row, strict=True)) for row in zip(ids.tolist(), found.tolist(), strict=True)]
