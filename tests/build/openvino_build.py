"""Building engines of target openvino, and what lies beside them."""

import os
from functools import lru_cache

import numpy as np

from tts.build.builder import build_engines
from tts.build.openvino.runtime import plugin_properties


def build(deployment, **options):
    """Build without comparison, unless it is asked for."""
    return build_engines(deployment, **({"verify": False, "say": print} | options))


def leftovers(home):
    """Names of what lies beside the engines, the lock file apart."""
    names = {entry.name for entry in (home / "built" / "test").iterdir()}
    return sorted(names - {"generator", "verifier", ".build.lock"})


def identity(report):
    """Differs whenever the engine's weights have been written again."""
    status = (report.folder / "openvino_model.bin").stat()
    return status.st_ino, status.st_mtime_ns


def touch_weights(checkpoint):
    """Flip one bit in place: same size."""
    with (checkpoint / "model.safetensors").open("r+b") as file:
        file.seek(-1, os.SEEK_END)
        last = file.read(1)[0]
        file.seek(-1, os.SEEK_END)
        file.write(bytes([last ^ 1]))


def logits(folder, ids, *, beside=False):
    """What an engine's graph computes of token ids [rows, tokens], in fp32.

    `beside`: it has score columns beside its vocabulary.
    """
    inputs = {
        "input_ids": ids,
        "attention_mask": np.ones_like(ids),
        "position_ids": np.arange(ids.shape[1])[None],
        "beam_idx": np.zeros(1, np.int32),
    }
    if beside:
        inputs["sampled_tokens_indices"] = np.arange(len(ids))
    file = folder / "openvino_model.xml"
    model = compiled(file, file.stat().st_mtime_ns)
    return model.create_infer_request().infer(inputs)["logits"]


@lru_cache(maxsize=1)
def compiled(file, written_ns):
    """The graph of a file that was written at that time."""
    import openvino

    return openvino.Core().compile_model(file, "CPU", plugin_properties("fp32"))
