"""Requirements of a command, checked on this machine before anything else."""

from __future__ import annotations

import shlex
import shutil

from tts.base.errors import CheckpointError, ServerError
from tts.build.spec import Deployment


def require_gpu(deployment: Deployment) -> None:
    """Raise ServerError without a driver for the deployment's GPUs, unless a server answers."""
    if deployment.tensorrt is None or shutil.which("nvidia-smi"):
        return
    from tts.serving.server.lookup import find_server
    from tts.serving.server.triton import Triton

    if find_server(Triton(deployment)):
        return
    name = deployment.name
    raise ServerError(
        f"Deployment {name!r} runs on an NVIDIA GPU ({deployment.tensorrt.gpu}), and this machine "
        "has none: there is no nvidia-smi.",
        hint="Run this on the machine with the GPU. What needs none: tts plan, tts lint, "
        "tts build-engines --dry-run, tts render and tts serve --dry-run.",
    )


def require_checkpoints(deployment: Deployment) -> None:
    """Raise CheckpointError naming the download of every published checkpoint that is missing."""
    from tts.build.model_config import known_model

    missing = {}
    for engine in deployment.engines().values():
        published = known_model(engine.checkpoint)
        if published and not engine.checkpoint.is_dir():
            missing[engine.checkpoint] = published.source.removeprefix("https://huggingface.co/")
    if missing:
        folders = "\n".join(f"  {folder}" for folder in missing)
        downloads = "\n".join(
            f"  hf download {repository} --local-dir {shlex.quote(str(folder))} "
            "--exclude 'original/*'"
            for folder, repository in missing.items()
        )
        raise CheckpointError(
            f"These checkpoints of {deployment.name!r} are not there yet:\n{folders}",
            hint=f"Download them (pip install huggingface_hub):\n{downloads}\n"
            "or set `checkpoint` in the deployment file to the folders where they are.",
        )
