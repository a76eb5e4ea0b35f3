"""Sessions over scripted endpoints: no server, no engines, no GPU."""

import pytest
from tests.endpoints.scripted import ScriptedGenerator, ScriptedVerifier
from tests.session.remote_servers import FakeServers

from tts.build.tokenizer import Tokenizer
from tts.endpoints.openai import generator, server, verifier
from tts.session import Session

WORDS = ("1", "22", " + ", r"\boxed{4}", r"\boxed{5}")


@pytest.fixture(scope="module")
def tokenizer(tokenizer_folder):
    return Tokenizer(tokenizer_folder)


@pytest.fixture(scope="module")
def words(tokenizer):
    return [tokenizer.encode(word) for word in WORDS], tokenizer.encode("\n\n")


@pytest.fixture
def endpoints(words):
    """Both endpoints, as the arguments of Session.open."""
    return {"generator": ScriptedGenerator(*words), "verifier": ScriptedVerifier()}


@pytest.fixture
def opened(tiny_deployment, endpoints):
    """Opens a session of the tiny deployment, whose endpoints are scripted unless given."""
    return lambda **given: Session.open(tiny_deployment, **endpoints | given)


@pytest.fixture
def opened_async(tiny_deployment, endpoints):
    """The same, for a program with an event loop."""
    return lambda **given: Session.open_async(tiny_deployment, **endpoints | given)


@pytest.fixture
def session(opened):
    with opened() as session:
        yield session


@pytest.fixture
def servers(words, monkeypatch):
    """Servers at http://gen and http://ver."""
    fake = FakeServers(words)
    fake.serve("http://gen")
    fake.serve("http://ver", model="judge")
    monkeypatch.setattr(server, "OpenAIServer", fake)
    monkeypatch.setattr(generator, "OpenAIGenerator", lambda server, **_: server.generator())
    monkeypatch.setattr(verifier, "OpenAIVerifier", lambda server, *_: server.verifier())
    return fake
