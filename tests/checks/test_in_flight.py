"""Checks of how much is sent to the engines at a time."""

from hypothesis import given
from hypothesis import strategies as st
from tests.checks.deployments import LLAMA, changed, serious

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


def test_a_batch_of_scores_is_doubted_if_it_holds_nothing_back_or_exceeds_the_budget():
    def found(base: str, tokens: int) -> list[str]:
        return [
            str(finding) for finding in serious(changed(base, {"verifier.group_tokens": tokens}))
        ]

    for base in ("demo", LLAMA):
        assert found(base, 2048) == []
        (finding,) = found(base, 1)
        assert "verifier.group_tokens: is 1, but every request has more than" in finding
    (finding,) = found(LLAMA, 65537)
    assert "is 65537, but in_flight_tokens is 65536" in finding
    assert "at most 65536" in finding
