"""Strategies that other packages bring."""

import pytest
from tests.strategies.installed import install, install_the_example

from tts import plugins
from tts.base.errors import ConfigError
from tts.strategies.catalog import (
    PLUGINS,
    STRATEGIES,
    all_strategies,
    find_strategy,
    known_strategy,
    strategy_names,
    strategy_of,
)
from tts.strategies.parameters import check_blocks, configure, configure_all

GOOD = """
from dataclasses import replace
from tts.strategies.catalog import STRATEGIES

def wide():
    return replace(STRATEGIES["beam-search"], name="wide", defaults={"n": 32})
"""


@pytest.fixture
def installed(monkeypatch, tmp_path):
    """Installs a package `mine` with one module of the same name."""

    def put(source, package="mine", **entry_points):
        install(monkeypatch, tmp_path / package, package, package, source, entry_points)

    return put


@pytest.fixture
def example(monkeypatch, tmp_path):
    install_the_example(monkeypatch, tmp_path)


def test_a_plugin_is_found_listed_and_configured_like_any_other(example, tiny_deployment):
    shortest = find_strategy("shortest")
    assert strategy_names() == [*STRATEGIES, "shortest"]
    assert all_strategies()["shortest"] == shortest
    assert shortest.configure({"n": 3}, context=64).n == 3
    with pytest.raises(ConfigError, match="Strategy shortest has no parameter 'width'"):
        shortest.configure({"width": 3}, context=64)
    deployment = tiny_deployment.model_copy(update={"strategies": {"shortest": {"n": 5}}})
    check_blocks(deployment)
    assert configure(shortest, deployment, {}).n == 5
    assert configure_all(deployment, {})["shortest"].n == 5


def test_an_entry_point_may_be_a_function(installed):
    installed(GOOD, wide="mine:wide")
    assert find_strategy("wide").configure({}, context=64).n == 32


def test_an_unknown_name_lists_plugins_too(example):
    with pytest.raises(ConfigError, match=r"no strategy 'shortish'") as caught:
        find_strategy("shortish")
    assert caught.value.hint.endswith("mcts, auto, shortest.")


@pytest.mark.parametrize(
    ("source", "value", "complaint"),
    [
        ("import nothing_of_this_name", "mine:S", "cannot be loaded: ModuleNotFoundError: No mod"),
        ("", "mine:S", "cannot be loaded: AttributeError: "),
        ("S = 3", "mine:S", "must give a Strategy named 'broken', not 3."),
        ("def f(): raise KeyError('x')", "mine:f", "cannot be loaded: KeyError: 'x'"),
        (GOOD, "mine:wide", "must give a Strategy named 'broken', not one named 'wide'"),
    ],
)
def test_a_broken_plugin_is_named_to_those_who_ask_for_it_alone(
    installed, tiny_deployment, source, value, complaint
):
    installed(source, broken=value)
    for ask in (
        lambda: find_strategy("broken"),
        all_strategies,
        lambda: configure_all(tiny_deployment, {}),
    ):
        with pytest.raises(ConfigError) as caught:
            ask()
        assert f"The strategy 'broken' of package mine ({value}) {complaint}" in str(caught.value)
        assert caught.value.hint == "Fix or uninstall mine."
    blocks = tiny_deployment.model_copy(update={"strategies": {"broken": {}}})
    with pytest.raises(ConfigError, match=r"strategies\.broken: The strategy 'broken' of package"):
        check_blocks(blocks)
    assert known_strategy("broken") is None
    assert find_strategy("beam-search") is STRATEGIES["beam-search"]
    assert strategy_of(STRATEGIES["dvts"].configure({}, context=64)) is STRATEGIES["dvts"]
    check_blocks(tiny_deployment)


def test_a_plugin_with_the_name_of_a_built_in_strategy_is_refused(installed):
    installed(GOOD, dvts="mine:wide")
    with pytest.raises(
        ConfigError, match=r"'dvts' of package mine \(mine:wide\) has the name of a"
    ):
        find_strategy("dvts")
    with pytest.raises(ConfigError, match="dvts"):
        all_strategies()
    assert find_strategy("rebase") is STRATEGIES["rebase"]


def test_two_plugins_of_one_name_are_refused(installed):
    installed(GOOD, wide="mine:wide")
    installed(GOOD, package="yours", wide="yours:wide")
    with pytest.raises(ConfigError, match=r"packages have a strategy 'wide': (mine|yours), "):
        find_strategy("wide")
    assert strategy_names() == [*STRATEGIES, "wide"]


def test_parameters_tell_which_strategy_they_belong_to(example):
    """Weighted best-of-n grows the very trees of best-of-n."""
    for name, strategy in all_strategies().items():
        found = strategy_of(strategy.configure({}, context=64)).name
        assert found == ("best-of-n" if name == "weighted-best-of-n" else name)

    class Unheard(find_strategy("shortest").config):
        pass

    with pytest.raises(ConfigError, match="parameters of the type Unheard"):
        strategy_of(Unheard())


def test_packages_are_looked_for_anew_only_where_one_was_installed(installed, monkeypatch):
    installed("x = 1", **{"first": "mine:x"})
    assert "first" in PLUGINS.names()
    reads = []
    read = plugins.entry_points
    monkeypatch.setattr(plugins, "entry_points", lambda **of: reads.append(of) or read(**of))
    assert PLUGINS.find("nobody") is None
    assert "first" in PLUGINS.names()
    assert reads == []
    installed("y = 1", package="other", **{"second": "other:y"})
    assert {"first", "second"} <= set(PLUGINS.names())
    assert len(reads) == 1
