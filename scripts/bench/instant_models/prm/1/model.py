"""A verifier that answers at once: a score from a hash of the dialogue."""

import json
import zlib

import numpy as np
import triton_python_backend_utils as pb_utils

SCORES = 1000


class TritonPythonModel:
    """Speaks as much of the wire contract as a search uses."""

    def execute(self, requests):
        """Score every request."""
        return [_answer(request) for request in requests]


def _answer(request):
    rows = pb_utils.get_input_tensor_by_name(request, "input_ids").as_numpy()
    lengths = pb_utils.get_input_tensor_by_name(request, "input_lengths").as_numpy().ravel()
    hashes = [zlib.crc32(ids[:length].tobytes()) for ids, length in zip(rows, lengths, strict=True)]
    scores = np.array([[each % (SCORES + 1) / SCORES] for each in hashes], np.float32)
    first = json.loads(request.parameters() or "{}").get("first_row", 0)
    numbers = np.arange(first, first + len(rows), dtype=np.int32).reshape(-1, 1)
    return pb_utils.InferenceResponse(
        output_tensors=[pb_utils.Tensor("score", scores), pb_utils.Tensor("batch_index", numbers)]
    )
