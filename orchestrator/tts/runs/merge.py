"""The logs of a run's shards as one log: as if one orchestrator had solved all at those times."""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Mapping
from datetime import datetime
from pathlib import Path
from typing import Any

import msgspec

from tts.base.errors import RunDamaged

from .events import (
    VERSION,
    Event,
    Finished,
    Idle,
    RequestEnded,
    Resources,
    SessionBegan,
    StepScored,
    encode,
)
from .files import replacing
from .folder import EVENTS, input_checksums, writing
from .log import ChecksumChain, read_events

_TIMES = ("t", "sent", "done", "since", "until")


def write_merged(folder: Path, shards: Mapping[str, Path]) -> None:
    """Write the log of `folder` from those of finished shards, by name; raises RunError.

    Each event keeps its wall-clock time, by its machine's clock, so shards that ran side by side do
    so here. What says no server yet gets its shard's name as one.
    """
    sessions = {
        name: [event for event in read_events(path) if isinstance(event, SessionBegan)]
        for name, path in shards.items()
    }
    firsts = [of_shard[0] for of_shard in sessions.values() if of_shard]
    try:
        began = min(each.began for of_shard in sessions.values() for each in of_shard)
    except ValueError as error:  # also where no shard has a session
        raise RunDamaged(f"The logs of these shards have no beginning: {error}.") from error
    limits = [first.limits for first in firsts if first.limits]
    first = min(firsts, key=lambda session: session.began)
    total = sum(each[0] for each in limits), sum(each[1] for each in limits)
    by_source: dict[str, Resources] = {}
    last = 0.0
    chain = ChecksumChain()
    with writing(folder):
        first = msgspec.structs.replace(
            first,
            t=0.0,
            limits=total if limits else None,
            version=VERSION,
            files=input_checksums(folder),
            changed=dict(
                item for each in sessions.values() for s in each for item in s.changed.items()
            ),
        )
        with replacing(folder / EVENTS) as file:
            file.write(chain.seal(encode(first)))
            streams = [_on_one_clock(name, path, began) for name, path in shards.items()]
            for source, event in heapq.merge(*streams, key=lambda item: item[1].t):
                last = max(last, event.t)
                if isinstance(event, Finished):
                    continue
                if isinstance(event, Resources):
                    by_source[source] = event
                    event = _summed(event, by_source)
                file.write(chain.seal(encode(event)))
            file.write(chain.seal(encode(Finished(t=last))))


def _on_one_clock(name: str, path: Path, began: datetime) -> Iterator[tuple[str, Event]]:
    """A shard's events but its sessions, in seconds since `began`, each with its session's name."""
    offset = 0.0
    session = 0
    for event in read_events(path):
        if isinstance(event, SessionBegan):
            offset = (event.began - began).total_seconds()
            session += 1
            continue
        cached = isinstance(event, StepScored) and event.cached
        changes: dict[str, Any] = {
            field: round(getattr(event, field) + offset, 6)
            for field in (("t",) if cached else _TIMES)
            if hasattr(event, field)
        }
        if isinstance(event, RequestEnded | StepScored | Idle) and not (event.server or cached):
            changes["server"] = name
        yield f"{name}, session {session}", msgspec.structs.replace(event, **changes)


def _summed(last: Resources, by_source: Mapping[str, Resources]) -> Resources:
    """What processes have used by the time of `last` that each count for themselves."""
    return msgspec.structs.replace(
        last,
        cpu_s=round(sum(each.cpu_s for each in by_source.values()), 6),
        energy_j={
            f"{name}, GPU {gpu}": joules
            for name, each in by_source.items()
            for gpu, joules in each.energy_j.items()
        },
    )
