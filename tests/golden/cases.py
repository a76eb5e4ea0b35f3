"""What is derived from which folders: a name for each case, and the function that derives it."""

import shutil
from functools import partial

from tests.golden import derived
from tests.golden.folders import GROUP, run_names, unpacked

COMPARED = {
    "schedules": ("decoupled", "lockstep", "batched", "alternating"),
    "limits": ("decoupled", "budget", "deadline"),
    "answers": ("decoupled", "constrained"),
    "unfinished": ("resumed", "interrupted", "torn"),
    "groups": ("group", "group"),
    "a-run-and-a-group": ("budget", "group"),
    "nothing-in-common": ("program", "decoupled"),
    "without-references": ("unreferenced", "unreferenced"),
}
CONTINUED = ("interrupted", "torn", "lockstep-interrupted")


def cases():
    """Every case by name: a function of an empty folder, in which it may work."""
    found = {}
    for name in run_names():
        found[f"run/{name}"] = partial(_on_copy, derived.of_run, name)
        found[f"report/{name}"] = partial(_on_copy, derived.of_report, name)
        found[f"trace/{name}"] = partial(_traced, name)
    found[f"rows/{GROUP}"] = partial(_on_copy, derived.of_rows, GROUP)
    found[f"report/{GROUP}"] = partial(_on_copy, derived.of_report, GROUP)
    for name, folders in COMPARED.items():
        found[f"together/{name}"] = partial(_together, derived.of_comparison, folders)
    for name in CONTINUED:
        found[f"continued/{name}"] = partial(_on_copy, derived.of_resumption, name)
    repaired = partial(derived.of_resumption, repair=True)
    found["continued/damaged"] = partial(_on_copy, repaired, "damaged")
    found["continued/damaged-unrepaired"] = partial(_on_copy, derived.of_resumption, "damaged")
    found["continued/failed"] = partial(_on_copy, derived.of_resumption, "failed")
    found["merge/both"] = partial(_merged, ("shard-1", "shard-2"))
    found["merge/one"] = partial(_refused_merge, ("shard-1",))
    found["merge/no-shard"] = partial(_refused_merge, ("shard-1", "decoupled"))
    found["refusals"] = lambda where: derived.of_refusals(where / "run")
    found["study"] = partial(_on_copy, derived.of_study, "study")
    found["wire/single"] = lambda where: derived.of_wire(where / "grpc")
    found["wire/gateway"] = lambda where: derived.of_gateway(where / "grpc")
    found["wire/continued"] = lambda where: derived.of_requests(
        unpacked("lockstep-interrupted", where), where / "grpc"
    )
    return found


def _on_copy(derive, name, where):
    return derive(unpacked(name, where))


def _traced(name, where):
    return derived.of_trace(unpacked(name, where), where / "trace.json")


def _together(derive, names, where):
    folders = []
    for place, name in enumerate(names):
        folder = unpacked(name, where)
        if name in names[:place]:  # the same run again
            folder = shutil.copytree(folder, where / f"{name}-{place}")
        folders.append(folder)
    return derive(*folders)


def _merged(shards, where):
    return derived.of_merge([unpacked(name, where) for name in shards], where / "merged")


def _refused_merge(shards, where):
    return derived.command(
        "runs", "merge", *(unpacked(s, where) for s in shards), "--out", where / "out"
    )
