"""From the verifier's logits to the score of a step: its labels' mean weight under their softmax.

Needs nothing but numpy, so that it also runs in a container without this toolkit.
"""

import json

import numpy as np
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    """Picks the label logits out of a row of logits, and weighs their softmax."""

    def initialize(self, args):
        """Read which logits are the labels, and what each counts."""
        parameters = json.loads(args["model_config"])["parameters"]
        self.label_ids = [int(n) for n in parameters["label_ids"]["string_value"].split(",")]
        weights = parameters["label_weights"]["string_value"].split(",")
        self.weights = np.array([float(w) for w in weights], np.float32)
        biases = parameters.get("label_biases", {"string_value": "0"})["string_value"]
        self.biases = np.array([float(b) for b in biases.split(",")], np.float32)

    def execute(self, requests):
        """Answer every request, or say what is wrong with it."""
        return [self._answer(request) for request in requests]

    def _answer(self, request):
        logits = pb_utils.get_input_tensor_by_name(request, "generation_logits").as_numpy()
        if logits.ndim != 4 or logits.shape[:2] != (1, 1) or logits.shape[2] < 1:
            return _error(f"generation_logits has shape {list(logits.shape)}, not [1, 1, 1, V]")
        row = logits[0, 0, 0]  # the logits that chose the first generated token
        if max(self.label_ids) >= len(row):
            return _error(f"the label ids {self.label_ids} lie outside the {len(row)} logits")
        labels = row[self.label_ids].astype(np.float32) + self.biases
        if not np.isfinite(labels).all():
            return _error(f"the label logits are not finite: {labels.tolist()}")
        exponentials = np.exp(labels - labels.max(), dtype=np.float32)
        score = (self.weights * exponentials).sum() / exponentials.sum()
        return pb_utils.InferenceResponse(
            output_tensors=[
                pb_utils.Tensor("score", score.reshape(1, 1)),
                pb_utils.Tensor("label_logits", labels.reshape(1, -1)),
            ]
        )


def _error(message):
    return pb_utils.InferenceResponse(output_tensors=[], error=pb_utils.TritonError(message))
