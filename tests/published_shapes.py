"""Shapes of published models, as the simulated engines have them."""

from pathlib import Path

from tts.build.model_config import shape_of
from tts.engines.simulated import ModelShape

LLAMA_1B = ModelShape.of(shape_of(Path("Llama-3.2-1B-Instruct")))
LLAMA_8B_VERIFIER = ModelShape.of(shape_of(Path("Llama3.1-8B-PRM-Deepseek-Data")), head=False)
"""Llama-3.1-8B with its head cut to the rows of the two labels."""
