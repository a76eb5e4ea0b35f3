"""How many threads embedded engines have."""

from pathlib import Path

import pytest

from tts.engines.engine_messages import Open
from tts.fleet import embedded


@pytest.mark.parametrize(
    ("role", "alone", "stated", "threads"),
    [
        ("verifier", True, None, 7),
        ("verifier", True, 3, 1),
        ("verifier", False, None, 1),
        ("generator", True, None, 1),
    ],
)
def test_a_verifier_alone_has_every_core(
    monkeypatch, tiny_deployment, role, alone, stated, threads
):
    opening = Open(Path("engine"), None, 1, 0.0, None, None)
    monkeypatch.setattr(embedded, "opening_of", lambda deployment, role: opening)
    monkeypatch.setattr(embedded, "usable_cores", lambda: 7)
    verifier = tiny_deployment.verifier.model_copy(update={"threads": stated})
    deployment = tiny_deployment.model_copy(update={"verifier": verifier})
    assert embedded._opening(deployment, role, alone=alone).threads == threads
