"""Checks of search settings: strategies, and how much is in flight at a time."""

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


def test_every_wrong_strategy_and_parameter_is_named_by_its_path():
    blocks = {
        "bean-search": {"n": 8},
        "beam-search": {"beam_wdth": 2, "n": 8},
        "best-of-n": {"temperature": -1, "top_p": 2},
        "dvts": {"n": 8, "beam_width": 3},
        "rebase": {"max_tokens": 999},
        "majority-vote": {"n": 8, "temperature": 1.0},
        "greedy": {"n": 4},
        "mcts": {"n": "many"},
        "": {},
    }
    found = serious(changed("demo", {"strategies": blocks}))
    assert {finding.severity for finding in found} == {"error"}
    assert [(finding.where, finding.what.partition(";")[0]) for finding in found] == [
        ("strategies.bean-search", "unknown strategy"),
        ("strategies.beam-search.beam_wdth = 2", "not a parameter that can be set"),
        ("strategies.best-of-n.temperature = -1", "must be at least 0.0"),
        ("strategies.best-of-n.top_p = 2", "must be at most 1.0"),
        ("strategies.dvts", "n is 8, which is not a multiple of beam_width (3), such as 9"),
        (
            "strategies.rebase",
            "max_tokens is 999, but the generator's context holds 320 tokens, prompt and output "
            "together (generator.max_seq_len)",
        ),
        ("strategies.greedy.n = 4", "not a parameter that can be set"),
        ("strategies.mcts.n = 'many'", "must be a whole number"),
        ("strategies.", "unknown strategy"),
    ]
