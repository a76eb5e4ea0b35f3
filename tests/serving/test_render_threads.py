"""The threads in the model repository: those of the machine on which it is rendered."""

import pytest

from tts.build.openvino import threads
from tts.build.spec import load_deployment
from tts.serving.repository.render import parse_config, render_models, template_values


@pytest.mark.parametrize("stated", [None, 5])
def test_an_engine_has_the_threads_that_its_deployment_states_or_that_are_left(
    tmp_path, monkeypatch, stated
):
    monkeypatch.setattr(threads, "usable_cores", lambda: 16)
    monkeypatch.setattr(threads, "LEAST_WEIGHTS", 1)
    demo = load_deployment("demo")
    verifier = demo.verifier.model_copy(update={"threads": stated})
    demo = demo.model_copy(update={"verifier": verifier})
    render_models(demo, template_values(demo, iteration_log=False), tmp_path)
    rendered = [
        int(parse_config(tmp_path / name / "config.pbtxt").parameters["threads"].string_value)
        for name in ("generator", "prm")
    ]
    assert rendered == list(threads.threads_of(demo).values())
    assert sum(rendered) == 16
    assert stated in (None, rendered[1])
