"""Checks of labels and stop words."""

import pytest
from tests.checks.deployments import LLAMA, changed, serious

from tts.build.spec import load_deployment
from tts.checks import lint, prompts


def test_labels_of_an_unknown_verifier_are_doubted_and_noted():
    deployment = changed(LLAMA, {"verifier.labels": {"positive": "good", "negative": "bad"}})
    (finding,) = serious(deployment)
    assert (finding.severity, finding.where) == ("warning", "verifier.labels")
    assert any("'good' and 'bad' are not known" in f.what for f in lint(deployment))


def test_stop_words_that_do_not_fit_the_wire(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(prompts, "delimiter_stop_words", lambda *_: [(1,), ()])
    (finding,) = serious(load_deployment("demo"))
    assert "a stop word has no tokens" in finding.what
