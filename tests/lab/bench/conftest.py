"""Benchmarks over scripted engines: no server, no GPU."""

from functools import partial

import pytest
from tests.endpoints.scripted import ScriptedGenerator, ScriptedVerifier

from tts.build.tokenizer import Tokenizer
from tts.fleet import connecting
from tts.lab import campaign
from tts.lab.bench import single_run
from tts.session import AsyncSession


class NotStarted:
    """A session that must not be opened."""

    def __init__(self, deployment, *, endpoints, say, on_loading):
        pass

    async def __aenter__(self):
        raise AssertionError("the engines were started")


@pytest.fixture
def engines(tiny_deployment, tokenizer_folder, monkeypatch):
    """Scripted engines in the place of a server; calling it puts none there."""
    encode_text = Tokenizer(tokenizer_folder).encode
    words = [encode_text(word) for word in ("1", "22", r"\boxed{4}")], encode_text("\n\n")
    scripted = partial(
        AsyncSession, generator=ScriptedGenerator(*words), verifier=ScriptedVerifier()
    )

    def put(session):
        monkeypatch.setattr(single_run, "deployment_of", lambda config: tiny_deployment)
        monkeypatch.setattr(campaign, "AsyncSession", session)

    monkeypatch.setattr(connecting, "require_current", lambda spec: None)
    monkeypatch.setattr(connecting, "build_if_quick", lambda spec, say: None)
    put(scripted)
    return lambda: put(NotStarted), lambda: put(scripted)


@pytest.fixture
def none(engines):
    return engines[0]
