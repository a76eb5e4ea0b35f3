"""Strategies of other packages, which are found by their entry points.

An entry point of the group `tts.strategies` has the strategy's name and refers to a `Strategy`, or
to a function that returns one. It is loaded when its name is asked for, so that a broken one
disturbs only those who use it.
"""

from __future__ import annotations

from importlib.metadata import EntryPoint, entry_points

from tts.build.errors import ConfigError

from .strategy import Strategy

GROUP = "tts.strategies"


def plugin_names() -> list[str]:
    """The names that plug-ins have, sorted; none is loaded."""
    return sorted({entry.name for entry in entry_points(group=GROUP)})


def find_plugin(name: str) -> EntryPoint | None:
    """The plug-in of that name, which is not loaded; raises ConfigError if there are several."""
    found = list(entry_points(group=GROUP, name=name))
    if len(found) > 1:
        raise ConfigError(
            f"Several packages have a strategy {name!r}: {', '.join(map(package_of, found))}.",
            hint="Uninstall all of them but one.",
        )
    return found[0] if found else None


def load_plugin(plugin: EntryPoint) -> Strategy:
    """Import a plug-in; raises ConfigError if that fails or gives no strategy of its name."""
    try:
        loaded = plugin.load()
        strategy = loaded() if callable(loaded) else loaded
    except Exception as error:
        raise ConfigError(
            f"{describe(plugin)} cannot be loaded: {type(error).__name__}: {error}",
            hint=f"Fix or uninstall {package_of(plugin)}.",
        ) from error
    if isinstance(strategy, Strategy) and strategy.name == plugin.name:
        return strategy
    found = f"one named {strategy.name!r}" if isinstance(strategy, Strategy) else repr(strategy)
    raise ConfigError(
        f"{describe(plugin)} must give a Strategy named {plugin.name!r}, not {found:.60}.",
        hint=f"Fix or uninstall {package_of(plugin)}.",
    )


def package_of(plugin: EntryPoint) -> str:
    """The name of the distribution that a plug-in comes with."""
    return plugin.dist.name if plugin.dist else "unknown"


def describe(plugin: EntryPoint) -> str:
    """What a plug-in is and where it comes from, to begin a sentence with."""
    return f"The strategy {plugin.name!r} of package {package_of(plugin)} ({plugin.value})"
