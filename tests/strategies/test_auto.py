"""The policy of `auto`: where it comes from, and what is refused."""

import json

import pytest

from tts.build.errors import ConfigError
from tts.search.auto import SEARCHES
from tts.strategies.auto import DEFAULT_POLICY, read_policy
from tts.strategies.catalog import STRATEGIES, find_strategy

AUTO = find_strategy("auto")
ADAPTIVE = find_strategy("weighted-adaptive-vote")


def configure(**given):
    return AUTO.configure(given, context=320)


def test_what_a_policy_may_choose_are_the_weighted_votes_of_n_completions():
    weighted = {
        strategy.name: strategy.config
        for strategy in STRATEGIES.values()
        if strategy.vote == "weighted" and strategy not in (AUTO, ADAPTIVE)
    }
    assert weighted == SEARCHES


def test_n_chooses_the_budget_of_the_default_policy():
    policy = read_policy(DEFAULT_POLICY)
    for n in (4, 5, 16, 64, 1000):
        assert configure(n=n).policy == policy.budget(n)
    with pytest.raises(ConfigError, match="n is 3, but the smallest budget of the policy is 4"):
        configure(n=3)


def test_a_run_keeps_the_policy_itself_and_not_the_name_of_its_file(tmp_path):
    file = tmp_path / "mine.json"
    choices = [{"strategy": "rebase", "n": 3}]
    file.write_text(json.dumps({"budgets": [{"n": 2, "samples": 1, "choices": choices}]}))
    config = configure(n=2, policy=str(file))
    file.unlink()
    assert AUTO.configure(config.to_json(), context=320) == config
    assert config.to_json()["policy"]["choices"] == [{"below": None, **choices[0]}]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (None, "there is no file"),
        ("{", "it is not JSON"),
        ('{"budgets": []}', "is not a policy"),
        ('{"budget": [], "budgets": []}', "unknown field; allowed here: made_from, budgets"),
        (
            '{"budgets": [{"n": 4, "samples": 1, "choices": [{"strategy": "greedy", "n": 1}]}]}',
            "greedy",
        ),
    ],
)
def test_a_file_that_is_no_policy_is_refused_by_name(tmp_path, text, said):
    file = tmp_path / "mine.json"
    if text is not None:
        file.write_text(text)
    with pytest.raises(ConfigError, match=said) as caught:
        configure(policy=str(file))
    assert "mine.json" in str(caught.value)


def test_sampling_and_aggregation_reach_the_search_that_is_chosen():
    config = configure(temperature=0.5, top_p=0.9, max_tokens=20, agg_strategy="min")
    chosen = config.policy.choose(0.0).config(config)
    assert (chosen.temperature, chosen.top_p, chosen.max_tokens) == (0.5, 0.9, 20)
    assert chosen.agg_strategy == "min"
