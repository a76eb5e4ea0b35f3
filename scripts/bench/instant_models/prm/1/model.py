"""A verifier that answers at once: a score from a hash of the dialogue."""

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
    ids = pb_utils.get_input_tensor_by_name(request, "input_ids").as_numpy()
    score = zlib.crc32(ids.tobytes()) % (SCORES + 1) / SCORES
    tensor = pb_utils.Tensor("score", np.array([[score]], np.float32))
    return pb_utils.InferenceResponse(output_tensors=[tensor])
