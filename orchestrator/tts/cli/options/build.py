"""Options of the commands that build and serve: init, plan, lint, build-engines, render, serve."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from tts.base.choices import Target

from . import DeploymentArgument, JsonOption, path_option, usable

_MODEL = (
    "a checkpoint folder, a GGUF file, OWNER/NAME on the Hugging Face hub, the URL of a running "
    "server, or demo"
)


@dataclass(frozen=True, kw_only=True)
class Init:
    """Write a deployment file for your models and this machine, with each field explained."""

    file: Annotated[
        Path, typer.Argument(callback=usable, metavar="FILE", help="The file to write.")
    ] = Path("deployment.yaml")
    generator: Annotated[
        str | None,
        typer.Option(
            metavar="MODEL", help=f"The model that writes steps: {_MODEL}.", show_default="demo"
        ),
    ] = None
    verifier: Annotated[
        str | None,
        typer.Option(
            metavar="MODEL",
            help="The model that scores steps: any of these, or a Python function FILE.py:NAME.",
            show_default="the generator itself",
        ),
    ] = None
    target: Annotated[
        Target | None,
        typer.Option(
            "--engine",
            "--target",
            metavar="NAME",
            help="What runs the models: vllm, sglang, llama.cpp, trtllm-serve (servers that tts "
            "starts); openvino (compiled for this CPU); tensorrt (compiled for NVIDIA GPUs); "
            "openai (running servers).",
            show_default="what suits this machine",
        ),
    ] = None
    gpu: Annotated[
        str | None,
        typer.Option(
            metavar="KIND",
            help="The kind of NVIDIA GPU, such as h100.",
            show_default="this machine's",
        ),
    ] = None
    format_: Annotated[
        str | None,
        typer.Option(
            "--format",
            metavar="NAME",
            help="How the verifier is asked (docs/reference/verifiers.md).",
            show_default="recognised where possible",
        ),
    ] = None
    generator_tokenizer: Annotated[
        str | None,
        typer.Option(
            metavar="MODEL",
            help="Tokenizer of a generator with a URL or of GGUF: a folder, or OWNER/NAME.",
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
            help="Environment variable with the API key of these servers.",
            show_default="none",
        ),
    ] = None
    force: Annotated[bool, typer.Option("--force", help="Replace an existing file.")] = False


@dataclass(frozen=True, kw_only=True)
class Plan:
    """Plan a deployment's memory, on GPUs or on this machine; needs no GPU."""

    deployment: DeploymentArgument
    write: Annotated[
        bool, typer.Option("--write", help="Write kv_cache.tokens of both engines to the file.")
    ] = False
    as_json: JsonOption = False


@dataclass(frozen=True, kw_only=True)
class Lint:
    """Check everything about a deployment that needs no GPU; fails if there are errors."""

    deployment: DeploymentArgument
    deep: Annotated[bool, typer.Option("--deep", help="Also hash the files of built engines.")] = (
        False
    )
    manifests: Annotated[
        Path | None,
        path_option(
            "Also check manifests that `tts render` wrote there (target tensorrt).", metavar="DIR"
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
        path_option(
            "Also write manifests for docker compose and Kubernetes there (NVIDIA GPUs). "
            "Started engines have nothing else.",
            metavar="DIR",
        ),
    ] = None


@dataclass(frozen=True, kw_only=True)
class Serve:
    """Start the servers of a deployment and keep them running until Ctrl-C.

    Compiled engines are served by Triton, others by their own servers. What dies is restarted.
    """

    deployment: DeploymentArgument
    stop: Annotated[
        bool, typer.Option("--stop", help="Stop the running servers of this deployment.")
    ] = False
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Print the commands and do nothing.")
    ] = False
