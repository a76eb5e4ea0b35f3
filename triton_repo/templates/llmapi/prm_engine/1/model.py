"""Triton's entry point. The model itself is in the modules of the toolkit beside this file.

They are brought along because NVIDIA's container has no toolkit; where it has one, they come first.
"""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

from tts.engines.llmapi.model import TritonPythonModel

__all__ = ["TritonPythonModel"]
