"""Which strategies share a run of a group."""

from tts.lab.bench.group_run import members_of
from tts.strategies.catalog import STRATEGIES
from tts.strategies.parameters import configure_all


def test_the_same_search_under_several_votes_is_one_run(tiny_deployment):
    configs = configure_all(tiny_deployment, {"n": 8})
    members = members_of(configs, STRATEGIES)
    assert sorted(name for member in members for name in member.votes) == sorted(STRATEGIES)
    (shared,) = [member for member in members if "best-of-n" in member.votes]
    assert shared.votes == {"best-of-n": "best", "weighted-best-of-n": "weighted"}
    assert shared.folder == "best-of-n"
    assert shared.parameters["n"] == 8
    blocks = {"weighted-best-of-n": {"temperature": 0.3}}
    apart = configure_all(tiny_deployment.model_copy(update={"strategies": blocks}), {"n": 8})
    assert all(len(m.votes) == 1 for m in members_of(apart, STRATEGIES) if "best-of-n" in m.votes)
