"""Grammars, compiled where nobody waits for them but the requests that use them.

OpenVINO GenAI compiles a grammar in the step that has the first token of its request, and with it
all others wait: a minute for 10,000 characters and a vocabulary of 150,000. xgrammar keeps what it
has compiled with the tokenizer. So a pipeline of the engine's tokenizer and a model without weights
generates a token with each grammar first, in a thread of its own: unlike `step`, `generate` lets go
of the interpreter lock. The engine's step then finds the grammar, and reads it in milliseconds.

The library notes the times of compiling in a vector that threads append to without a lock (2026.4):
two within the same nanoseconds lose one, and end the process if it grows just then. It grows some
twenty times in the life of an engine; this was never seen.
"""

from __future__ import annotations

import os
import tempfile
import threading
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import openvino as ov
import openvino.opset13 as ops
import openvino_genai as ov_genai

from .generate_request import GenerateRequest
from .pipeline import generation_config
from .wire import EBNF, Guide

THREADS = 4
"""Grammars that are compiled at a time: a large one must not hold up the small ones."""
_NICENESS = 10
"""Niceness of these threads: the engine's steps come first."""
_DIM = 16  # the least that paged attention takes


class GrammarCompiler:
    """The grammars of one tokenizer. `compiled` and `drop` are for the engine's thread."""

    def __init__(self, tokenizer: Any, vocab_size: int, end_id: int) -> None:
        """`vocab_size` is that of the engine's logits; xgrammar's grammars are for one size."""
        self._tokenizer = tokenizer
        self._end_id = end_id
        self._known: dict[Guide, Future[None]] = {}
        self._pool = ThreadPoolExecutor(THREADS, "grammars", initializer=self._open)
        self._opening = threading.Lock()
        self._own = threading.local()
        self._vocab_size = vocab_size

    def compiled(self, guide: Guide) -> Future[None]:
        """The compiling of a guide, begun now unless it was; its exception is why it cannot be."""
        if guide not in self._known:
            self._known[guide] = self._pool.submit(self._compile, guide)
        return self._known[guide]

    def drop(self, guide: Guide) -> None:
        """Do not compile a guide that nobody waits for any more, unless that has begun."""
        if self._known[guide].cancel():
            del self._known[guide]

    def close(self) -> None:
        """Compile nothing more."""
        self._pool.shutdown(wait=False, cancel_futures=True)

    def _open(self) -> None:
        os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), _NICENESS)
        scheduler = ov_genai.SchedulerConfig()
        scheduler.num_kv_blocks = 1
        scheduler.max_num_seqs = 1
        scheduler.enable_prefix_caching = False
        properties = {"INFERENCE_NUM_THREADS": 1}
        with self._opening:  # the first grammar makes what all of them share
            with tempfile.TemporaryDirectory() as folder:
                ov.save_model(_model(self._vocab_size), Path(folder, "openvino_model.xml"))
                self._own.pipeline = ov_genai.ContinuousBatchingPipeline(
                    folder, self._tokenizer, scheduler, "CPU", **properties
                )
            self._compile(Guide(EBNF, 'root ::= "1"'))

    def _compile(self, guide: Guide) -> None:
        prompt = np.zeros(1, np.int64)
        request = GenerateRequest(prompt, max_new_tokens=1, end_id=self._end_id, guide=guide)
        config = generation_config(request, log_probs=False)
        self._own.pipeline.generate([ov.Tensor(prompt.reshape(1, 1))], [config])


def _model(vocab_size: int) -> ov.Model:
    """A transformer of one layer whose logits are all 0."""

    def ints(*values: int) -> Any:
        return ops.constant(np.array(values, np.int64))

    names = {"input_ids": 2, "attention_mask": 2, "position_ids": 2, "beam_idx": 1}
    inputs = []
    for name, rank in names.items():
        inputs.append(ops.parameter([-1] * rank, np.int64 if rank == 2 else np.int32))
        inputs[-1].set_friendly_name(name)
        inputs[-1].output(0).get_tensor().set_names({name})
    ids, attention_mask, _, beams = inputs
    zeros = ops.constant(np.zeros((1, 1, _DIM), np.float32))
    hidden = ops.multiply(ops.unsqueeze(ops.convert(ids, np.float32), ints(-1)), zeros)
    query = ops.unsqueeze(hidden, ints(1))
    batch = ops.gather(ops.shape_of(ids), ints(0), ints(0))
    empty = ops.broadcast(np.float32(0), ops.concat([batch, ints(1, 0, _DIM)], 0))
    states, sinks = [], []
    for name in ("key", "value"):
        past = ops.read_value(empty, name, np.float32, [-1, 1, -1, _DIM])
        states.append(ops.concat([ops.gather(past, beams, ints(0)), query], 2))
        sinks.append(ops.assign(states[-1], name))
    mask = ops.unsqueeze(ops.convert(attention_mask, np.float32), ints(1, 2))
    mixed = ops.scaled_dot_product_attention(query, *states, mask, causal=False)
    row = ops.reduce_sum(ops.squeeze(mixed, ints(1)), ints(-1), True)
    logits = ops.matmul(row, ops.constant(np.zeros((vocab_size, 1), np.float32)), False, True)
    logits.output(0).get_tensor().set_names({"logits"})
    return ov.Model([ops.result(logits)], sinks, inputs, "grammars")
