"""`tts simulate --placements`: where on the GPUs both engines are fastest."""

from __future__ import annotations

from typing import TYPE_CHECKING

import typer

from .json_output import print_json

if TYPE_CHECKING:
    from tts.build.spec import Deployment

MAX_CONCURRENCY = 4096
"""Beyond, a simulation takes hours."""


def counts(text: str) -> list[int]:
    """Numbers of problems, as `1,8,64`."""
    try:
        counts = sorted({int(part) for part in text.split(",")})
    except ValueError:
        counts = []
    if not counts or not 1 <= counts[0] <= counts[-1] <= MAX_CONCURRENCY:
        raise typer.BadParameter(
            f"{text!r:.100}: give whole numbers from 1 to {MAX_CONCURRENCY:,}, as 1,8,64",
            param_hint="--concurrency",
        )
    return counts


def print_best_placements(
    deployment: Deployment,
    concurrencies: list[int],
    gpus: int | None,
    n: int,
    *,
    as_json: bool = False,
) -> None:
    """Simulate every placement on so many GPUs that fits, and print which is the fastest."""
    from tts.build.errors import ConfigError
    from tts.build.tensorrt.gpus import gpus_of
    from tts.build.tensorrt.placements import placed
    from tts.lab.bench.simulated_run import PlacedRun, advice_of, simulate_placements
    from tts.reports.console import consoles, say
    from tts.reports.simulation import print_placements

    from .documents.deployments import PlacementsDocument

    deployment.compiled_pair()
    if deployment.target == "openvino":
        raise ConfigError(
            f"Deployment {deployment.name!r}: target is 'openvino', for which there is nothing to "
            "place: both engines are on this machine's cores, and how fast they are is measured.",
            hint=f"Measure it (tts tune {deployment.named}), then compare schedules with "
            f"tts simulate {deployment.named} --tuned RESULT.",
        )
    gpus = gpus or len(gpus_of(deployment))
    candidates, refused = placed(deployment, gpus)
    if not candidates:
        raise ConfigError(
            f"Deployment {deployment.name!r} cannot be placed on {gpus} GPUs. {refused[-1].reason}",
            hint="More GPUs (--gpus), a larger tensorrt.gpu or a smaller precision.",
        )

    def told(run: PlacedRun) -> None:
        say(
            f"{run.concurrency} at a time, {run.placement.text}: {run.problems_per_min:,.0f} "
            "problems per minute, simulated"
        )

    runs = simulate_placements(candidates, concurrencies, n, told)
    if as_json:
        print_json(
            PlacementsDocument(
                deployment=deployment.name,
                gpus=gpus,
                n=n,
                runs=runs,
                refused=list(refused),
                advice=advice_of(runs),
            )
        )
        return
    print_placements(consoles()[0], deployment, gpus, n, runs, refused)
