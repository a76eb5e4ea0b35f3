"""Parts of several measurements: tables, processor time, logged runs, and the trees of searches."""

from __future__ import annotations

import tempfile
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import psutil
from rich.table import Table

from tts.lab.simulation.scenario import digest_of
from tts.runs.folder import create_run
from tts.runs.log import RunLog
from tts.search import Search
from tts.search.tree import Tree

if TYPE_CHECKING:
    from tts.serving.server.start import RunningServer


def table_of(title: str, *headings: str, left: Collection[str] = ()) -> Table:
    """A table of numbers: its columns are set to the right, but for those in `left`."""
    table = Table(title=title, title_justify="left")
    for heading in headings:
        table.add_column(heading, justify="left" if heading in left else "right")
    return table


def process_of(server: RunningServer) -> psutil.Process:
    """The tritonserver process of a server that was started here."""
    assert server.state.server is not None
    return psutil.Process(server.state.server.pid)


def family_of(process: psutil.Process) -> list[psutil.Process]:
    """A process and all that it has started."""
    return [process, *process.children(recursive=True)]


def cpu_s(processes: Iterable[psutil.Process]) -> float:
    """Processor seconds of these processes so far, in user and system mode."""
    return float(sum(sum(process.cpu_times()[:2]) for process in processes))


@contextmanager
def logged() -> Iterator[RunLog]:
    """The log of a run in a folder that is removed afterwards."""
    with tempfile.TemporaryDirectory() as folder:
        create_run(Path(folder), {})
        with RunLog(Path(folder)) as log:
            yield log


def tree_of(search: Search) -> Tree:
    """The tree of a built-in search, all of which show theirs."""
    assert search.tree is not None
    return search.tree


def thoughts_of(searches: Mapping[str, Search]) -> int:
    """How many thoughts the searches have, all together."""
    return sum(len(tree_of(search)) for search in searches.values())


def digest_of_all(searches: Mapping[str, Search]) -> str:
    """One digest of all trees, by the names of their problems."""
    return digest_of({name: tree_of(search).digest() for name, search in searches.items()})
