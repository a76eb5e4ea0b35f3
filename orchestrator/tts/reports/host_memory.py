"""What `tts plan` prints for target openvino: the memory of both engines and of their server."""

from __future__ import annotations

from collections.abc import Iterator

from rich.console import Console
from rich.table import Table

from tts.build.machine_memory import MemoryLimit
from tts.build.openvino.memory import MIB, HostMemoryPlan, gib

from .sheet import Sheet


def print_host_memory(out: Console, plan: HostMemoryPlan, limit: MemoryLimit | None) -> None:
    """Print what takes how much, and whether the memory of `limit` is enough."""
    out.print(
        f"[bold]{plan.deployment.name}[/] on this machine's CPU: a plan from shapes; nothing was "
        "run.",
        soft_wrap=True,
    )
    out.print()
    out.print(_table(plan))
    files = ", ".join(f"{role} {_mib(engine.file)}" for role, engine in plan.engines.items())
    for line in (
        f"Needed: {gib(plan.needed)}. The embedding is read from the weight file, whose pages the "
        "kernel takes back when memory is short.",
        f"While an engine loads, its whole weight file is mapped as well, in MiB: {files}.",
        f"The verifier judges with {plan.judged_by}.",
        *(_beside(plan, limit) if limit else ()),
    ):
        out.print(line, markup=False, soft_wrap=True)


def _beside(plan: HostMemoryPlan, limit: MemoryLimit) -> Iterator[str]:
    left = limit.size - plan.needed
    told = f"{gib(left)} are left" if left >= 0 else f"{gib(-left)} are lacking"
    yield f"There are {gib(limit.size)} in {limit.of}: {told}."


def _table(plan: HostMemoryPlan) -> Sheet:
    table = Table()
    table.add_column("MiB")
    for column in ("weights", "embedding", "KV pool", "working space", "process", "sum"):
        table.add_column(column, justify="right", no_wrap=True)
    for role, engine in plan.engines.items():
        parts = (engine.copies, engine.embedding, engine.kv_cache, engine.working, engine.process)
        name = f"{role}, {plan.deployment.engines()[role].precision}"
        table.add_row(name, *map(_mib, parts), _mib(engine.resident))
    table.add_row("server", *[""] * 4, _mib(plan.server), _mib(plan.server))
    table.add_row("pair", *[""] * 5, _mib(plan.resident), style="bold")
    return Sheet(table)


def _mib(size: int) -> str:
    return f"{size / MIB:,.0f}"
