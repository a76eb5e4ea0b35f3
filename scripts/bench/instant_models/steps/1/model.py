"""A generator that answers at once: one of its canned steps, chosen by the request's seed."""

import json
import queue
import threading

import numpy as np
import triton_python_backend_utils as pb_utils

FINAL = pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL


class TritonPythonModel:
    """Speaks as much of the wire contract as a search uses."""

    def initialize(self, args):
        """Read the steps from the model's configuration."""
        parameters = json.loads(args["model_config"])["parameters"]
        steps = json.loads(parameters["steps"]["string_value"])
        self.steps = [
            (np.array([[ids]], np.int32), np.array([[len(ids)]], np.int32)) for ids in steps
        ]

        self.waiting = queue.SimpleQueue()
        self.sender = threading.Thread(target=self._answer_all, daemon=True)
        self.sender.start()

    def execute(self, requests):
        """Take every request; a stop ends nothing, as nothing is running."""
        for request in requests:
            seed = pb_utils.get_input_tensor_by_name(request, "seed")
            chosen = int(seed.as_numpy().flat[0]) % len(self.steps) if seed else 0
            self.waiting.put((request.get_response_sender(), chosen))

    def finalize(self):
        """End the thread."""
        self.waiting.put(None)
        self.sender.join()

    def _answer_all(self):
        while taken := self.waiting.get():
            sender, chosen = taken
            ids, length = self.steps[chosen]
            answer = pb_utils.InferenceResponse(
                output_tensors=[
                    pb_utils.Tensor("output_ids", ids),
                    pb_utils.Tensor("sequence_length", length),
                ]
            )
            sender.send(answer, flags=FINAL)
