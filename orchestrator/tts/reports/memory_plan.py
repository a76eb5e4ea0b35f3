"""The output of `tts plan`: the memory of each GPU, both engines' pools, and the values in the
file; or, for target openvino, the memory of both engines and of their server.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from rich.console import Console
from rich.table import Table
from rich.text import Text

from tts.base.machine_limits import MemoryLimit
from tts.base.shown_text import gib
from tts.build.openvino.memory import MIB, HostMemoryPlan
from tts.build.spec import Deployment, Role
from tts.build.started.engines import Budget
from tts.build.tensorrt.memory_plan import KV_FRACTION, GpuPlan, MemoryPlan

from .console import Sheet

_BAR_WIDTH = 72
_PARTS = {  # in the order in which the bar shows them
    "weights": "blue",
    "activations": "magenta",
    "workspaces": "yellow",
    "graphs": "red",
    "generator KV": "green",
    "verifier KV": "cyan",
    "free": "bright_black",
}
_COLUMNS = ("weights", "activations", "logits", "workspaces", "graphs", "transfer")
_MARKS = dict(zip(_PARTS, "WAXCGV.", strict=True))  # a pipe shows no colours


def print_memory_plan(out: Console, planned: MemoryPlan) -> None:
    """Print each GPU with its contents, the engines, and the cost of a search step."""
    out.print(
        f"[bold]{planned.deployment}[/] on {planned.gpu.name}: a plan from shapes and data sheets; "
        "nothing was run.",
        soft_wrap=True,
    )
    for gpu in planned.gpus:
        out.print()
        out.print(_gpu_table(gpu))
        out.print(_bar(gpu, colours=out.is_terminal))
    out.print()
    out.print(engine_table(planned))
    if planned.judged_by:
        out.print(f"The verifier judges with {planned.judged_by}.", markup=False, soft_wrap=True)
    out.print(_cost(planned), markup=False, soft_wrap=True)


def print_headroom(out: Console, planned: MemoryPlan) -> None:
    """Print what a GPU may have in use beside engines whose pools a fraction bounds as well."""
    out.print(
        f"Room on every GPU for what this plan does not know of: {_gib(planned.headroom)} GiB. "
        f"Beyond it kv_cache_free_gpu_mem_fraction ({KV_FRACTION:g}) cuts a pool short, and only "
        "the server's log tells.",
        soft_wrap=True,
    )


def print_pools(
    out: Console, planned: MemoryPlan, in_file: Mapping[Role, int], lengths: Mapping[Role, int]
) -> None:
    """Print how the planned KV pools (`lengths`, tokens) differ from the file's (`in_file`)."""
    if in_file == lengths:
        out.print("kv_cache.tokens in the file: as planned.")
        return
    for role in in_file:
        line = f"{role}.kv_cache.tokens: {in_file[role]} -> {lengths[role]}"
        out.print(line if in_file[role] != lengths[role] else f"{role}.kv_cache.tokens: as planned")
    for device, excess in planned.excess(in_file).items():
        out.print(
            f"With the file's values GPU {device} lacks {_gib(excess)} GiB.", style="bold red"
        )


def _gpu_table(gpu: GpuPlan) -> Sheet:
    table = Table(title=f"GPU {gpu.device}: {_gib(gpu.total)} GiB", title_justify="left")
    table.add_column("GiB")
    ranks = [place.memory for place in gpu.ranks]
    columns = [name for name in _COLUMNS if any(getattr(memory, name) for memory in ranks)]
    for column in (*columns, "KV cache", "sum"):
        table.add_column(column, justify="right", no_wrap=True)
    several = len({place.replica for place in gpu.ranks}) > 1
    for place in gpu.ranks:
        memory = place.memory
        sizes = [getattr(memory, name) for name in columns]
        same = [other for other in gpu.ranks if other.role == place.role]
        kv = gpu.kv[place.role] // len(same)
        name = f"{place.role}, rank {place.rank}"
        table.add_row(
            name + (f" of replica {place.replica}" if several else ""),
            *map(_gib, sizes),
            _gib(kv),
            _gib(memory.fixed + kv),
        )
    if gpu.server:
        blank = [""] * len(columns)
        blank[columns.index("workspaces")] = _gib(gpu.server)
        table.add_row("the server itself", *blank, "", _gib(gpu.server))
    table.add_row("free", *[""] * len(columns), "", _gib(gpu.free), style="dim")
    return Sheet(table)


def _bar(gpu: GpuPlan, colours: bool) -> Text:
    """The GPU's memory as a line: every part as long as it is large, and at least one mark."""
    sizes = dict.fromkeys(_PARTS, 0) | {"workspaces": gpu.server}
    for place in gpu.ranks:
        sizes["weights"] += place.memory.weights
        sizes["activations"] += place.memory.activations + place.memory.logits
        sizes["workspaces"] += place.memory.workspaces + place.memory.transfer
        sizes["graphs"] += place.memory.graphs
    sizes |= {f"{role} KV": size for role, size in gpu.kv.items()}
    sizes["free"] = gpu.free
    sizes_shown = {part: size for part, size in sizes.items() if size}
    lengths = {
        part: max(1, round(_BAR_WIDTH * size / gpu.total)) for part, size in sizes_shown.items()
    }
    largest = max(lengths, key=lambda part: lengths[part])
    lengths[largest] += _BAR_WIDTH - sum(lengths.values())
    bar, legend = Text(), Text()
    for part, size in sizes_shown.items():
        mark = "█" if colours else _MARKS[part]
        bar.append(mark * lengths[part], _PARTS[part])
        legend.append("  " if legend else "").append(f"{mark} {part} {_gib(size)}", _PARTS[part])
    return bar.append("\n").append_text(legend)


def engine_table(planned: MemoryPlan) -> Table:
    """A column for each engine: so it fits a narrow terminal."""
    engines = planned.engines.values()
    table = Table()
    table.add_column("engine")
    for role, engine in planned.engines.items():
        table.add_column(f"{role}, {engine.spec.precision}", justify="right")
    fullest = (max(rank.kv_bytes_per_token for rank in e.ranks) for e in engines)
    rows = {
        "parameters": (f"{e.parameters.total / 1e9:.3f} B" for e in engines),
        "KV bytes/token per rank": (f"{size:,}" for size in fullest),
        "pool, tokens": (f"{e.tokens:,}" for e in engines),
        "blocks": (f"{e.blocks:,}" for e in engines),
        "full sequences": (
            f"{e.full_sequences:,} of {e.spec.max_seq_len:,} tokens" for e in engines
        ),
        "beams in mid-search": (f"{e.beams:,}" for e in engines),
    }
    for name, values in rows.items():
        table.add_row(name, *values)
    return table


def _cost(planned: MemoryPlan) -> str:
    search = planned.searched
    line = (
        f"One search step of {planned.beams} beams (roofline estimate): {search.seconds:.3f} s, "
        "one role after the other."
    )
    if planned.saved:
        return (
            f"{line} One engine has both roles: its weights are loaded once, which saves "
            f"{_gib(planned.saved)} GiB, and one pool serves both."
        )
    if not planned.shared:
        return f"{line} They share no GPU, so there is nothing to divide."
    plain = planned.plain
    halves: dict[Role, int] = {"generator": plain.generator, "verifier": plain.verifier}
    short = [role for role in halves if halves[role] < planned.engines[role].spec.max_seq_len]
    if short:
        return f"{line} Equal halves would not hold one sequence of the {' and the '.join(short)}."
    return (
        f"{line} Equal halves of the KV memory ({plain.generator:,} and {plain.verifier:,} "
        f"tokens): {plain.seconds:.3f} s, {plain.seconds / search.seconds:.2f}x."
    )


def _gib(size: int) -> str:
    return f"{size / 1024**3:.2f}"


def print_budgets(out: Console, deployment: Deployment, budgets: Mapping[Role, Budget]) -> None:
    """Print what engines take that are started on CPUs, or whose shapes are not known."""
    where = f"on {deployment.gpu}, whose shapes are not known" if deployment.gpu else "on CPUs"
    out.print(f"[bold]{deployment.name}[/] {where}: a plan; nothing was run.", soft_wrap=True)
    for role, budget in budgets.items():
        weights = f"weights {gib(budget.weights)}, " if budget.weights else ""
        holds = f" for {budget.kv_tokens:,} tokens" if budget.kv_tokens else ""
        out.print(f"{role}: {weights}KV cache {gib(budget.kv_bytes)}{holds}", highlight=False)


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
        *((f"The verifier judges with {plan.judged_by}.",) if plan.judged_by else ()),
        *(
            (
                "One engine has both roles: its weights and its process are there once, which "
                f"saves {gib(plan.saved)}, and one pool serves both.",
            )
            if plan.saved
            else ()
        ),
        *(_beside(plan, limit) if limit else ()),
    ):
        out.print(line, markup=False, soft_wrap=True)


def _beside(plan: HostMemoryPlan, limit: MemoryLimit) -> Iterator[str]:
    rest = limit.size - plan.needed
    remainder = f"{gib(rest)} are left" if rest >= 0 else f"{gib(-rest)} are lacking"
    yield f"There are {gib(limit.size)} in {limit.of}: {remainder}."


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
    whole = "pair" if len(plan.engines) == 2 else "together"
    table.add_row(whole, *[""] * 5, _mib(plan.resident), style="bold")
    return Sheet(table)


def _mib(size: int) -> str:
    return f"{size / MIB:,.0f}"
