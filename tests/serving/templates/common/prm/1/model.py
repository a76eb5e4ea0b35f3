"""Scores everything 0.5."""

import numpy as np
import triton_python_backend_utils as pb


class TritonPythonModel:
    def execute(self, requests):
        output = pb.Tensor("score", np.full((1, 1), 0.5, dtype=np.float32))
        return [pb.InferenceResponse([output]) for _ in requests]
