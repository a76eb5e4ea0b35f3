"""Senders of a client's requests by rows, on stand-ins of Triton's Python backend and of a host."""

import importlib
import json
import sys
from types import SimpleNamespace

import numpy as np
import pytest

from tts.engines import wire
from tts.engines.generate_request import EngineLimits
from tts.engines.responses import Response

LIMITS = EngineLimits(
    vocab_size=100, max_seq_len=64, max_num_tokens=32, block_size=32, blocks=8, max_active=4
)


@pytest.fixture
def model(monkeypatch):
    backend = SimpleNamespace(
        TRITONSERVER_RESPONSE_COMPLETE_FINAL=1,
        Tensor=lambda name, data: (name, data),
        InferenceResponse=lambda output_tensors, error=None: dict(output_tensors),
    )
    monkeypatch.setitem(sys.modules, "triton_python_backend_utils", backend)
    monkeypatch.delitem(sys.modules, "tts.engines.triton_model", raising=False)
    model = importlib.import_module("tts.engines.triton_model").TritonPythonModel()
    monkeypatch.delitem(sys.modules, "tts.engines.triton_model")
    model.serve({"model_name": "generator", "model_version": "1"}, LIMITS)
    model._host = Host()
    return model


class Sender:
    """Sends until its end, after which Triton's crashes when it is asked anything."""

    def __init__(self):
        self.sent, self.ended = [], False

    def send(self, response=None, flags=0):
        assert not self.ended
        self.sent.append(response)
        self.ended = bool(flags)

    def is_cancelled(self):
        assert not self.ended
        return False


class Host:
    """Asks whether requests are cancelled as soon as it may: whenever it has sent something."""

    def __init__(self):
        self.waiting, self.calls, self.later = [], [], []

    def submit_all(self, requests, is_cancelled):
        self.waiting += [(on_response, is_cancelled) for _, on_response in requests]
        return list(range(len(requests)))

    def call(self, function, after_s=0.0):
        if function.keywords:  # the end of a sender, which another thread may see to at once
            function()
            self.ask()
        else:
            (self.later if after_s else self.calls).append(function)

    def ask(self):
        for _, is_cancelled in self.waiting:
            is_cancelled()

    def answer(self, row):
        on_response, _ = self.waiting.pop(row)
        on_response(Response([7], finish_reason="length"))
        while self.calls:
            self.calls.pop(0)()
        self.ask()


def request(first, rows):
    tensors = {
        "input_ids": np.ones((rows, 2), np.int32),
        "input_lengths": np.full((rows, 1), 2, np.int32),
        "request_output_len": np.ones((rows, 1), np.int32),
    }
    sender = Sender()
    return sender, SimpleNamespace(
        get_response_sender=lambda: sender,
        inputs=lambda: [
            SimpleNamespace(name=lambda n=name: n, as_numpy=lambda t=tensor: t)
            for name, tensor in tensors.items()
        ],
        request_id=lambda: wire.rows_id("a", first),
        parameters=lambda: json.dumps({wire.FIRST_ROW: first}),
        requested_output_names=lambda: ["output_ids", "sequence_length", *wire.ROW_OUTPUTS],
    )


def test_only_the_latest_sender_of_a_client_is_asked_and_sends(model):
    (one, first), (two, second) = request(1, 2), request(3, 1)
    model.execute([first])
    model._host.answer(0)
    assert not one.ended
    model.execute([second])
    assert one.ended
    model._host.answer(0)
    model._host.answer(0)
    assert two.ended
    assert numbers(two) == [[2], [3]]
    three, third = request(4, 1)
    model.execute([third])
    model._host.answer(0)
    assert three.ended


def numbers(sender):
    return [each["batch_index"].ravel().tolist() for each in sender.sent]


def test_few_of_many_rows_wait_for_others_until_their_time_has_come(model):
    sender, asked = request(1, 6)
    model.execute([asked])
    model._host.answer(0)
    model._host.answer(0)
    assert not sender.sent
    model._host.answer(0)
    assert numbers(sender) == [[1, 2, 3]]
    model._host.answer(0)
    assert len(sender.sent) == 1
    early, due = model._host.later
    early()  # sends what is there
    due()  # has nothing left to send
    assert numbers(sender) == [[1, 2, 3], [4]]
