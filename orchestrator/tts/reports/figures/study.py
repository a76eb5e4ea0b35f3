"""The figures of a study: each of its measurements, drawn and read.

| module | what |
|---|---|
| study_speed | how fast, and how right, the cells were |
| study_engines | what happens inside of the engines |
| study_parts | what both have in common |
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from tts.lab.study.folder import Measurement

from .figure import Figure
from .study_engines import (
    batch_utilisation,
    by_load,
    kv_blocks,
    memory_by_split,
    tokens_per_request,
)
from .study_speed import (
    ablation,
    accuracy_by_n,
    concurrency,
    prefix_hits,
    thrashing,
    throughput_by_split,
)

FIGURES: Mapping[str, Callable[[Measurement], Figure]] = {
    "memory-by-split": memory_by_split,
    "throughput-by-split": throughput_by_split,
    "kv-blocks-generator": kv_blocks,
    "kv-blocks-verifier": kv_blocks,
    "prefix-hits-by-split": prefix_hits,
    "thrashing-by-split": thrashing,
    "tokens-per-request": tokens_per_request,
    "generator-by-load": by_load,
    "verifier-by-load": by_load,
    "batch-utilisation": batch_utilisation,
    "ablation": ablation,
    "concurrency": concurrency,
    "accuracy-by-n": accuracy_by_n,
}
"""In the order of the page."""


def study_figures(measurements: Sequence[Measurement]) -> list[Figure]:
    """A figure for each measurement, in a fixed order."""
    by_name = {measurement.name: measurement for measurement in measurements}
    return [draw(by_name[name]) for name, draw in FIGURES.items() if name in by_name]
