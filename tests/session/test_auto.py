"""The compute-optimal choice in a program: by name, with a policy, resumed with what was chosen."""

import json
from functools import partial

import pytest

from tts.build.errors import ConfigError
from tts.problem import Problem
from tts.runs.folder import read_config

PROBLEMS = [Problem(str(i), f"Compute {i} + {i}.", "4") for i in range(6)]
CHOICES = [{"below": 0.5, "strategy": "dvts", "n": 8}, {"strategy": "weighted-best-of-n", "n": 2}]


@pytest.fixture
def policy(tmp_path):
    file = tmp_path / "policy.json"
    budget = {"n": 4, "samples": 2, "choices": CHOICES}
    file.write_text(json.dumps({"budgets": [budget]}))
    return str(file)


def digests(results):
    return {result.problem.id: (result.tree_digest, result.answers) for result in results}


def test_easy_and_hard_problems_get_searches_of_their_own(session, policy, tmp_path):
    folder = tmp_path / "run"
    solve = partial(session.solve_many, PROBLEMS, strategy="auto", n=4, policy=policy)
    found = list(solve(out=folder))
    assert {len(result.completions) for result in found} == {2, 8}
    for schedule in ("lockstep", "batched", "alternating"):
        assert digests(solve(schedule=schedule)) == digests(found)
    assert read_config(folder)["parameters"]["policy"]["samples"] == 2
    assert digests(solve(out=folder, resume=True)) == digests(found)


def test_a_budget_that_ends_the_chosen_search_leaves_the_samples(session, policy):
    solve = partial(session.solve, PROBLEMS[0], strategy="auto", n=4)
    samples = session.solve(PROBLEMS[0], strategy="weighted-best-of-n", n=2)
    spent = sum(len(node.thought.token_ids) for node in samples.tree)
    found = solve(policy=policy, budget_tokens=spent + 1)
    assert samples.completions
    assert {done.node for done in samples.completions} <= {done.node for done in found.completions}
    assert sum(len(node.thought.token_ids) for node in found.tree) <= spent + 1


def test_a_budget_below_those_of_the_policy_is_refused(session, policy):
    with pytest.raises(ConfigError, match="the smallest budget of the policy is 4"):
        session.solve(PROBLEMS[0], strategy="auto", n=3, policy=policy)
