"""The checks of memory: that of each GPU, and of the machine."""

from __future__ import annotations

from collections.abc import Iterator

from tts.build.errors import ConfigError
from tts.build.openvino.fits import require_memory
from tts.build.spec import Deployment
from tts.build.tensorrt.memory_plan import check_pools
from tts.serving.contract import Finding

from .build_settings import buildable
from .checkpoints import models_of
from .findings import refused


def memory(deployment: Deployment) -> Iterator[Finding]:
    """Both engines and their KV pools within the memory of each GPU."""
    known = len(list(models_of(deployment))) == len(deployment.engines())
    if deployment.target != "openvino" and known and not any(buildable(deployment)):
        why = "the server would fail to load, or shrink the longest sequence and only log it"
        try:
            check_pools(deployment)
        except ConfigError as error:
            yield refused(error, deployment, "memory plan", why)


def machine_memory(deployment: Deployment) -> Iterator[Finding]:
    """Both engines of target openvino within this machine's memory, once their checkpoints are."""
    specs = deployment.engines().values()
    here = all((spec.checkpoint / "config.json").is_file() for spec in specs)
    known = len(list(models_of(deployment))) == len(deployment.engines())
    if deployment.target == "openvino" and known and here:
        why = "the kernel would end the server, or another process, in the middle of a run"
        try:
            require_memory(deployment)
        except ConfigError as error:
            yield refused(error, deployment, "memory plan", why)
