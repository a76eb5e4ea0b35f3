"""What is derived from which folders: a name for each case, and the function that derives it."""

import shutil
from functools import partial

from tests.golden import derived
from tests.golden.folders import GROUPS, run_names, unpacked

COMPARED = {
    "schedules": ("decoupled", "lockstep", "batched", "alternating"),
    "versions": ("v2-beam", "v1-beam", "v0-beam"),
    "limits": ("decoupled", "budget", "deadline"),
    "answers": ("decoupled", "constrained"),
    "unfinished": ("resumed", "interrupted", "torn"),
    "groups": ("group", "v2-group"),
    "a-run-and-a-group": ("budget", "group"),
    "nothing-in-common": ("program", "decoupled"),
    "without-references": ("unreferenced", "unreferenced"),
}
CONTINUED = ("interrupted", "torn", "v0-interrupted", "v1-interrupted", "v2-interrupted")


def cases():
    """Every case by name: a function of an empty folder, in which it may work."""
    found = {}
    for name in run_names():
        found[f"run/{name}"] = partial(_on_copy, derived.of_run, name)
        if name.startswith(("v1-group", "v2-group")):  # much the same as those of `group`
            continue
        found[f"report/{name}"] = partial(_on_copy, derived.of_report, name)
        found[f"trace/{name}"] = partial(_traced, name)
    for name in GROUPS:
        found[f"rows/{name}"] = partial(_on_copy, derived.of_rows, name)
        found[f"report/{name}"] = partial(_on_copy, derived.of_report, name)
    for name, folders in COMPARED.items():
        found[f"together/{name}"] = partial(_together, derived.of_comparison, folders)
    for name in CONTINUED:
        found[f"continued/{name}"] = partial(_on_copy, derived.of_resumption, name)
    repaired = partial(derived.of_resumption, repair=True)
    found["continued/damaged"] = partial(_on_copy, repaired, "damaged")
    found["continued/damaged-unrepaired"] = partial(_on_copy, derived.of_resumption, "damaged")
    found["continued/failed"] = partial(_on_copy, derived.of_resumption, "failed")
    for name in ("damaged", "torn", "decoupled", "v0-interrupted"):
        found[f"repair/{name}"] = partial(_on_copy, derived.of_repair, name)
    found["merge/both"] = partial(_merged, ("shard-1", "shard-2"))
    found["merge/one"] = partial(_refused_merge, ("shard-1",))
    found["merge/no-shard"] = partial(_refused_merge, ("shard-1", "decoupled"))
    found["refusals"] = lambda where: derived.of_refusals(where / "run")
    found["study"] = partial(_on_copy, derived.of_study, "study")
    found["tune"] = partial(_on_copy, derived.of_tune, "tune")
    found["wire/single"] = lambda where: derived.of_wire(where / "grpc")
    found["wire/gateway"] = lambda where: derived.of_gateway(where / "grpc")
    found["wire/continued"] = lambda where: derived.of_requests(
        unpacked("v1-interrupted", where), where / "grpc"
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
