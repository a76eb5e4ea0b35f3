"""Checks of how much is sent to the engines at a time."""

from hypothesis import given
from hypothesis import strategies as st
from tests.checks.deployments import LLAMA, changed

from tts.checks import lint, searches


@given(tokens=st.integers(4096, 2_000_000), replicas=st.integers(1, 3))
def test_the_verifiers_budget_is_doubted_outside_of_what_its_engines_can_use(
    tokens: int, replicas: int
):
    placed = {"verifier.tensorrt.gpus": [[gpu] for gpu in range(replicas)]}
    deployment = changed(LLAMA, {"verifier.in_flight_tokens": tokens} | placed)
    found = lint(deployment, [searches.verifier_tokens])
    least, most = 8192 * replicas, 64 * 4096 * replicas  # of the deployment file
    assert bool(found) == (not least <= tokens <= most)
    for finding in found:
        assert finding.where == "verifier.in_flight_tokens"
        assert finding.what.startswith(f"is {tokens}, but max_")
        assert str(least if tokens < least else most) in finding.fix
