"""The threads in the model repository: those of the machine on which it is rendered."""

from types import SimpleNamespace

import pytest

from tts.build.openvino import threads
from tts.build.spec import load_deployment
from tts.engines import opening
from tts.engines.engine_messages import OPENING, decode_opening
from tts.serving.repository.model_configs import model_configs

SHAPE = SimpleNamespace(vocab_size=100, eos_token_ids=(5,), label_token_ids=None)


@pytest.mark.parametrize("stated", [None, 5])
def test_an_engine_has_the_threads_that_its_deployment_states_or_that_are_left(monkeypatch, stated):
    monkeypatch.setattr(threads, "usable_cores", lambda: 16)
    monkeypatch.setattr(threads, "LEAST_WEIGHTS", 1)
    demo = load_deployment("demo")
    verifier = demo.verifier.model_copy(update={"threads": stated})
    demo = demo.model_copy(update={"verifier": verifier})
    monkeypatch.setattr(opening, "read_engine_config", lambda folder: SHAPE)
    configs = model_configs(demo)
    rendered = [
        decode_opening(configs[name].parameters[OPENING].string_value).threads
        for name in ("generator", "prm")
    ]
    assert rendered == list(threads.threads_of(demo).values())
    assert sum(rendered) == 16
    assert stated in (None, rendered[1])
