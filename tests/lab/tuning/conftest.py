"""A run with scripted engines, and the requests that are taken from its log."""

import pytest
from tests.driver.scripted_run import Run

from tts.build.tokenizer import Tokenizer
from tts.lab.tuning.recorded_requests import recorded_requests
from tts.runs.config import RunConfig
from tts.runs.events import VERSION, SessionBegan
from tts.search import BeamSearchConfig


@pytest.fixture
def run(tiny_deployment, tokenizer_folder):
    encode = Tokenizer(tokenizer_folder).encode
    words = [encode("37"), encode(" + "), encode("= 95")], encode("\n\n")
    return Run(tiny_deployment, words, BeamSearchConfig(n=4, beam_width=2), "decoupled").go()


@pytest.fixture
def recorded(run):
    session = SessionBegan(t=0.0, time="2026-01-01T00:00:00+00:00", version=VERSION)
    config = RunConfig(seed=1, parameters=run.config.model_dump(mode="json"))
    return recorded_requests(run.models, config, [session, *run.events])
