"""`tts random-checkpoint`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from .options import usable


def random_checkpoint(
    out: Annotated[
        Path,
        typer.Argument(callback=usable, metavar="DIR", help="The folder to make. It must be new."),
    ],
    params: Annotated[
        str | None,
        typer.Option(help="How many parameters it should have, such as 25M or 1.2B."),
    ] = None,
    like: Annotated[
        str | None,
        typer.Option(
            metavar="MODEL",
            help="Take the shape of this published model, such as Llama-3.2-1B-Instruct. "
            "An unknown name lists those that are known.",
        ),
    ] = None,
    architecture: Annotated[
        str, typer.Option(help="The architecture of a model made with --params.")
    ] = "LlamaForCausalLM",
    tokenizer: Annotated[
        Path | None,
        typer.Option(
            callback=usable,
            metavar="CHECKPOINT",
            help="The checkpoint whose tokenizer it gets.",
            show_default="the demo generator",
        ),
    ] = None,
    max_positions: Annotated[
        int, typer.Option(min=1, help="The longest sequence of a model made with --params.")
    ] = 4096,
    seed: Annotated[int, typer.Option(min=0, help="The weights depend on it alone.")] = 0,
) -> None:
    """Make a checkpoint with random weights: nonsense, at the speed of a real model of its shape.

    It measures engines where no real model is at hand. Give either --params or --like.
    """
    from tts.build import paths
    from tts.build.random_checkpoint import make_random_checkpoint, size_of
    from tts.build.tensorrt.engine_memory import parameters
    from tts.reports.console import say

    if (params is None) == (like is None):
        raise typer.BadParameter("give one of the two", param_hint="--params / --like")
    demo = paths.deployments_dir().parent / "checkpoints" / "demo-generator"
    config = make_random_checkpoint(
        out,
        tokenizer=tokenizer or demo,
        parameters=None if params is None else size_of(params),
        like=like,
        architecture=architecture,
        positions=max_positions,
        seed=seed,
    )
    say(
        f"{out}: {parameters(config).total:,} parameters, {config.architecture}, "
        f"{config.num_layers} layers of {config.hidden_size}"
    )
