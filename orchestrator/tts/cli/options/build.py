"""Options of the commands that build and serve: init, plan, lint, build-engines, render, serve."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from tts.base.choices import Target

from . import DeploymentArgument, JsonOption, usable

_MODEL = (
    "a checkpoint folder, a GGUF file, OWNER/NAME on the Hugging Face hub, the URL of a server "
    "that runs already, or demo"
)


@dataclass(frozen=True, kw_only=True)
class Init:
    """Write a deployment file for your models and this machine; each field is explained in it.

    What you leave out has the defaults that suit this machine.
    """

    file: Annotated[
        Path, typer.Argument(callback=usable, metavar="FILE", help="The file to write.")
    ] = Path("deployment.yaml")
    generator: Annotated[
        str | None,
        typer.Option(
            metavar="MODEL",
            help=f"The model that writes steps: {_MODEL}.",
            show_default="demo",
        ),
    ] = None
    verifier: Annotated[
        str | None,
        typer.Option(
            metavar="MODEL",
            help="The model that scores steps: the same kinds; or a Python function, FILE.py:NAME.",
            show_default="the generator itself",
        ),
    ] = None
    target: Annotated[
        Target | None,
        typer.Option(
            "--engine",
            "--target",
            metavar="NAME",
            help="What runs the models: vllm, sglang, llama.cpp or trtllm-serve (started by tts), "
            "openvino (this CPU) or tensorrt (NVIDIA GPUs), for which they are compiled, or openai "
            "(both models on servers that run already).",
            show_default="what suits this machine",
        ),
    ] = None
    gpu: Annotated[
        str | None,
        typer.Option(
            metavar="KIND",
            help="The kind of NVIDIA GPU, as tensorrt.gpu names it, such as h100.",
            show_default="this machine's",
        ),
    ] = None
    format_: Annotated[
        str | None,
        typer.Option(
            "--format",
            metavar="NAME",
            help="How the verifier is asked (docs/reference/verifiers.md).",
            show_default="recognised, as far as it can be",
        ),
    ] = None
    generator_tokenizer: Annotated[
        str | None,
        typer.Option(
            metavar="MODEL",
            help="For a generator with a URL, or a GGUF file: the folder of its tokenizer, or "
            "OWNER/NAME.",
            show_default="the model's name at the server",
        ),
    ] = None
    verifier_tokenizer: Annotated[
        str | None,
        typer.Option(
            metavar="MODEL",
            help="The same for the verifier.",
            show_default="the model's name at the server",
        ),
    ] = None
    api_key_env: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="The environment variable that holds the key of servers with a URL.",
            show_default="they need none",
        ),
    ] = None
    force: Annotated[
        bool, typer.Option("--force", help="Replace a file that is there already.")
    ] = False


@dataclass(frozen=True, kw_only=True)
class Plan:
    """Plan a deployment's memory, of its GPUs or of this machine; needs no GPU."""

    deployment: DeploymentArgument
    write: Annotated[
        bool,
        typer.Option("--write", help="Set kv_cache.tokens of both engines in the file."),
    ] = False
    as_json: JsonOption = False


@dataclass(frozen=True, kw_only=True)
class Lint:
    """Check everything about a deployment that needs no GPU; fails if there are errors."""

    deployment: DeploymentArgument
    deep: Annotated[
        bool,
        typer.Option("--deep", help="Also read every byte of the built engines (their hashes)."),
    ] = False
    manifests: Annotated[
        Path | None,
        typer.Option(
            callback=usable,
            metavar="DIR",
            help="Also check the manifests that `tts render` has written there (target tensorrt).",
        ),
    ] = None
    as_json: JsonOption = False


@dataclass(frozen=True, kw_only=True)
class BuildEngines:
    """Compile both checkpoints into engines; unchanged ones are skipped."""

    deployment: DeploymentArgument
    force: Annotated[bool, typer.Option("--force", help="Build even if nothing changed.")] = False
    verify: Annotated[
        bool | None,
        typer.Option(
            help="Compare the engines' logits with transformers (target openvino). "
            "Default: for small models."
        ),
    ] = None
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Print the commands and build nothing.")
    ] = False


@dataclass(frozen=True, kw_only=True)
class Render:
    """Render the Triton model repository of a deployment, and manifests."""

    deployment: DeploymentArgument
    manifests: Annotated[
        Path | None,
        typer.Option(
            callback=usable,
            metavar="DIR",
            help="Also write manifests for docker compose and Kubernetes there (NVIDIA GPUs); of "
            "engines that are started there is nothing else to render.",
        ),
    ] = None


@dataclass(frozen=True, kw_only=True)
class Serve:
    """Start the servers of a deployment and keep them running until Ctrl-C.

    Compiled engines are served by Triton, others by their own servers. One that dies is started
    again.
    """

    deployment: DeploymentArgument
    stop: Annotated[
        bool, typer.Option("--stop", help="Stop the servers of this deployment that are running.")
    ] = False
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Print the commands that would run, and do nothing.")
    ] = False
