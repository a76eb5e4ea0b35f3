"""Who is in a group of runs: strategies that are the same search share a run."""

from __future__ import annotations

from collections.abc import Mapping

from tts.runs.groups import Member
from tts.search import SearchConfig
from tts.strategies.catalog import find_strategy


def members_of(configs: Mapping[str, SearchConfig]) -> list[Member]:
    """The runs that strategies with these parameters need: one for all that search the same."""
    shared: dict[tuple[type[SearchConfig], SearchConfig], list[str]] = {}
    for name, config in configs.items():
        shared.setdefault((type(config), config), []).append(name)
    return [
        Member(
            names[0],
            {name: find_strategy(name).vote for name in names},
            config.to_json(),
        )
        for (_, config), names in shared.items()
    ]
