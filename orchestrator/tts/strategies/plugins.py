"""Strategies of other packages.

An entry point of the group `tts.strategies` has the strategy's name and refers to a `Strategy`, or
to a function that returns one.
"""

from __future__ import annotations

from importlib.metadata import EntryPoint

from tts.build.errors import ConfigError
from tts.plugins import PluginGroup, package_of

from .strategy import Strategy

PLUGINS = PluginGroup("tts.strategies", "strategy")


def load_plugin(plugin: EntryPoint) -> Strategy:
    """Import a plug-in; raises ConfigError if that fails or gives no strategy of its name."""
    loaded = PLUGINS.load(plugin)
    try:
        strategy = loaded() if callable(loaded) else loaded
    except Exception as error:
        raise PLUGINS.broken(plugin, error) from error
    if isinstance(strategy, Strategy) and strategy.name == plugin.name:
        return strategy
    found = f"one named {strategy.name!r}" if isinstance(strategy, Strategy) else repr(strategy)
    raise ConfigError(
        f"{PLUGINS.describe(plugin)} must give a Strategy named {plugin.name!r}, not {found:.60}.",
        hint=f"Fix or uninstall {package_of(plugin)}.",
    )
