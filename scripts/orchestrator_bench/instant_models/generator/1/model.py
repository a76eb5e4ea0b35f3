"""A generator that answers at once: one of its canned steps, chosen by the request's seed."""

import json

import numpy as np
import triton_python_backend_utils as pb_utils

FINAL = pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL


class TritonPythonModel:
    """Speaks as much of the wire contract as a search uses."""

    def initialize(self, args):
        """Read the steps from the model's configuration."""
        parameters = json.loads(args["model_config"])["parameters"]
        steps = json.loads(parameters["steps"]["string_value"])
        self.answers = [
            pb_utils.InferenceResponse(
                output_tensors=[
                    pb_utils.Tensor("output_ids", np.array([[ids]], np.int32)),
                    pb_utils.Tensor("sequence_length", np.array([[len(ids)]], np.int32)),
                ]
            )
            for ids in steps
        ]

    def execute(self, requests):
        """Answer every request; a stop ends nothing, as nothing is running."""
        for request in requests:
            seed = pb_utils.get_input_tensor_by_name(request, "seed")
            chosen = int(seed.as_numpy().flat[0]) % len(self.answers) if seed else 0
            request.get_response_sender().send(self.answers[chosen], flags=FINAL)
