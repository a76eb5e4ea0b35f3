"""Whose parameter wins, and how a wrong one is named."""

import pytest

from tts.base.errors import ConfigError
from tts.strategies.catalog import STRATEGIES
from tts.strategies.parameters import (
    block_problems,
    check_blocks,
    configure,
    configure_all,
    default_parameters,
)


def with_blocks(deployment, **blocks):
    named = {name.replace("_", "-"): block for name, block in blocks.items()}
    return deployment.model_copy(update={"strategies": named})


def test_given_wins_over_the_deployment_over_the_strategy(tiny_deployment):
    deployment = with_blocks(tiny_deployment, beam_search={"n": 8, "temperature": 0.5})
    check_blocks(deployment)
    config = configure(STRATEGIES["beam-search"], deployment, {"n": 4})
    assert (config.n, config.temperature, config.beam_width) == (4, 0.5, 4)
    assert configure(STRATEGIES["best-of-n"], deployment, {}).temperature == 0.8


def test_what_is_given_goes_to_every_strategy_that_can_take_it(tiny_deployment):
    configs = configure_all(tiny_deployment, {"n": 8, "beam_width": 2, "top_p": 0.9})
    assert list(configs) == list(STRATEGIES)
    for name, config in configs.items():
        assert config.n == (1 if name == "greedy" else 8)
        assert config.top_p == 0.9
        assert getattr(config, "beam_width", 2) == 2


@pytest.mark.parametrize(
    ("given", "complaint"),
    [
        ({"beams": 3}, "No strategy has a parameter 'beams'; there are "),
        ({"n": 10}, "are not valid:\n  n is 10, which is not a multiple"),
        ({"scored": False}, "No strategy has a parameter 'scored'"),
        ({"temperature": -1}, "strategy greedy are not valid:\n  temperature = -1"),
    ],
)
def test_what_no_strategy_has_or_one_refuses_is_refused(tiny_deployment, given, complaint):
    with pytest.raises(ConfigError) as caught:
        configure_all(tiny_deployment, given)
    assert complaint in str(caught.value)


def test_every_mistake_in_every_block_is_named_by_its_path(tiny_deployment):
    deployment = with_blocks(
        tiny_deployment,
        bean_search={"n": 8},
        beam_search={"beam_wdth": 2},
        best_of_n={"temperature": -1},
        greedy={"n": 4},
    )
    assert [(where, what.partition(";")[0]) for where, what in block_problems(deployment)] == [
        ("strategies.bean-search", "unknown strategy"),
        ("strategies.beam-search.beam_wdth = 2", "not a parameter that can be set"),
        ("strategies.best-of-n.temperature = -1", "must be at least 0.0"),
        ("strategies.greedy.n = 4", "not a parameter that can be set"),
    ]
    with pytest.raises(ConfigError, match=r"  strategies\.bean-search: unknown strategy; allowed"):
        check_blocks(deployment)


@pytest.mark.parametrize(
    ("name", "block", "problem"),
    [
        ("greedy", {"max_tokens": 999}, "max_tokens is 999, but"),
        ("beam_search", {"beam_width": 3}, "n is 16, which is not a"),
    ],
)
def test_a_block_that_is_wrong_as_a_whole_is_named(tiny_deployment, name, block, problem):
    ((where, what),) = block_problems(with_blocks(tiny_deployment, **{name: block}))
    assert where == f"strategies.{name.replace('_', '-')}"
    assert what.startswith(problem)


def test_defaults_are_what_a_strategy_does_by_itself(tiny_deployment):
    for strategy in STRATEGIES.values():
        config = configure(strategy, tiny_deployment, {})
        context = tiny_deployment.generator.max_seq_len
        assert default_parameters(strategy, context) == config.model_dump(mode="json")
        assert default_parameters(strategy, context, 6)["temperature"] == config.temperature
        assert config.max_tokens == context < default_parameters(strategy, 4096)["max_tokens"]
    assert default_parameters(STRATEGIES["best-of-n"], context, 6)["n"] == 6
