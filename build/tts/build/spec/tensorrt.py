"""Section `tensorrt` of a deployment: its GPU and its container."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from .section import Section

Gpu = Literal["a100-40g", "a100-80g", "l40s", "h100", "h200", "b200", "rtx4090"]
Image = Annotated[str, Field(max_length=255, pattern=r"^[A-Za-z0-9][A-Za-z0-9_./:@-]*$")]
"""The name of a container image, with its registry and tag."""


class TensorRTSpec(Section):
    """Where TensorRT-LLM runs (targets tensorrt and llmapi)."""

    gpu: Gpu
    """The kind of GPU; engines are built on the kind that serves them."""
    container: Literal["26.04", "26.05", "26.06", "26.07"] = "26.07"
    """Tag of nvcr.io/nvidia/tritonserver:TAG-trtllm-python-py3; these hold TensorRT-LLM 1.2.1."""
    image: Image | None = None
    """Another image, in place of the container's (target llmapi only): one with a later version."""
    launcher: Literal["auto", "mpirun"] = "auto"
    """auto: start the server of engines on GPU 0 alone directly, any other under mpirun. mpirun:
    start both under it, in case that is faster (docs/tensorrt.md says how to find out)."""
