"""Triton's entry point; the model itself lives in the package, where it is tested."""

from tts.engines.triton_model import TritonPythonModel

__all__ = ["TritonPythonModel"]
