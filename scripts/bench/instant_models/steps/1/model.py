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
        self.lengths = np.array([[len(ids)] for ids in steps], np.int32)
        self.steps = np.zeros((len(steps), 1, self.lengths.max()), np.int32)
        for row, ids in zip(self.steps, steps, strict=True):
            row[0, : len(ids)] = ids
        self.waiting = queue.SimpleQueue()
        self.sender = threading.Thread(target=self._answer_all, daemon=True)
        self.sender.start()

    def execute(self, requests):
        """Take every request, by rows or not; a stop ends nothing, as nothing is running."""
        for request in requests:
            seed = pb_utils.get_input_tensor_by_name(request, "seed")
            lengths = pb_utils.get_input_tensor_by_name(request, "input_lengths").as_numpy()
            seeds = seed.as_numpy().ravel() if seed else np.zeros(lengths.size, np.uint64)
            rows = (seeds % np.uint64(len(self.steps))).astype(np.int64)
            first = json.loads(request.parameters() or "{}").get("first_row", 0)
            self.waiting.put((request.get_response_sender(), rows, first))

    def finalize(self):
        """End the thread."""
        self.waiting.put(None)
        self.sender.join()

    def _answer_all(self):
        while waiting := self.waiting.get():
            sender, rows, first = waiting
            numbers = np.arange(first, first + len(rows), dtype=np.int32)
            answer = pb_utils.InferenceResponse(
                output_tensors=[
                    pb_utils.Tensor("output_ids", self.steps[rows]),
                    pb_utils.Tensor("sequence_length", self.lengths[rows]),
                    pb_utils.Tensor("batch_index", numbers.reshape(-1, 1)),
                ]
            )
            sender.send(answer, flags=FINAL)
