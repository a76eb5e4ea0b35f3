"""A generator that answers at once, token by token if the request says so, with canned tokens."""

import json

import numpy as np
import triton_python_backend_utils as pb_utils

FINAL = pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL


class TritonPythonModel:
    """Speaks as much of the wire contract as plain generation uses; end_id means nothing to it."""

    def initialize(self, args):
        """Read the tokens from the model's configuration."""
        parameters = json.loads(args["model_config"])["parameters"]
        self.tokens = json.loads(parameters["tokens"]["string_value"])
        self.single = [_response([token]) for token in self.tokens]

    def execute(self, requests):
        """Answer every request, those that came together in step, as an engine would.

        A stop ends nothing, as nothing is running.
        """
        streams = []
        for request in requests:
            length = int(_scalar(request, "request_output_len", 1))
            sender = request.get_response_sender()
            if _scalar(request, "stop", False):
                sender.send(flags=FINAL)
            elif _scalar(request, "streaming", False):
                streams.append((length, sender))
            else:
                turns = -(-length // len(self.tokens))
                sender.send(_response((self.tokens * turns)[:length]), flags=FINAL)
        for number in range(max((length for length, _ in streams), default=0)):
            token = self.single[number % len(self.single)]
            for length, sender in streams:
                if number < length:
                    sender.send(token, flags=FINAL if number == length - 1 else 0)


def _scalar(request, name, default):
    tensor = pb_utils.get_input_tensor_by_name(request, name)
    return default if tensor is None else tensor.as_numpy().flat[0]


def _response(ids):
    return pb_utils.InferenceResponse(
        output_tensors=[
            pb_utils.Tensor("output_ids", np.array([[ids]], np.int32)),
            pb_utils.Tensor("sequence_length", np.array([[len(ids)]], np.int32)),
        ]
    )
