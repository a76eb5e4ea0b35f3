"""What the tests of the gateway share."""

import pytest
from tests.endpoints.scripted import ScriptedGenerator, ScriptedVerifier
from tests.gateway.in_process import Says, answers, roomy

from tts.gateway.safety.filters import FilterChain


@pytest.fixture
def endpoints(tokenizer):
    """Scripted engines, which write sums and boxes."""
    words = [tokenizer.encode(word) for word in ("1", "22", " + ", r"\boxed{4}")]
    return {
        "generator": ScriptedGenerator(words, tokenizer.encode("\n\n")),
        "verifier": ScriptedVerifier(),
    }


@pytest.fixture
def ask(tiny_deployment, endpoints):
    """The answers of a gateway over these to requests."""

    def asked(*requests, deployment=tiny_deployment, **options):
        return answers(deployment, endpoints, *requests, **options)

    return asked


@pytest.fixture
def ask_model(tiny_deployment, tokenizer):
    """The answers of a gateway over a model that says something, and the model."""

    def asked(say, *requests, kind=Says, guided=True, score=lambda *_: 0.9, **options):
        model = kind(tokenizer, say)
        endpoints = {"generator": model, "verifier": lambda question, steps: score(question, steps)}
        requests = ((path, {"model": "tiny", **body}) for path, body in requests)
        return answers(roomy(tiny_deployment, guided), endpoints, *requests, **options), model

    return asked


@pytest.fixture
def filters_of(tmp_path):
    """The filters of a text of rules."""

    def filters(rules, name="rules.yaml"):
        (tmp_path / name).write_text(rules, encoding="utf-8")
        return FilterChain.load(tmp_path / name)

    return filters


@pytest.fixture
def file(tmp_path):
    """Where a gateway's database is, or will be."""
    return tmp_path / "gateway" / "gateway.db"
