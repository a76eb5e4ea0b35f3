"""The facts from which a new deployment file is made."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from ..spec import STARTED, Gpu, HeadKind, Scores, Target


@dataclass(frozen=True)
class Machine:
    """The machine that is to run a deployment."""

    cores: int
    """CPU cores that may be used."""
    memory: int | None = None
    """Bytes of main memory; None where it is not told."""
    bf16: bool = False
    """Whether the CPU computes in bf16."""
    triton: bool = True
    """Whether a Triton server for target openvino is installed."""
    gpu: Gpu | None = None
    """The kind of its NVIDIA GPUs, or of those that the file is for."""
    gpus: int = 0
    """How many of them there are here; 0: unknown, or none."""
    gpu_name: str = ""
    """The first GPU's name by nvidia-smi, whether its kind is known or not."""


@dataclass(frozen=True)
class CompiledModel:
    """A checkpoint that is compiled here, or loaded by an engine that is started."""

    checkpoint: str
    """Its path as the file is to give it."""
    folder: Path
    """Its absolute path: the folder of its config.json, once it is there."""
    positions: int | None
    """The longest sequence that it has positions for; None where its shape is not known."""
    repository: str = ""
    """Its name on the Hugging Face hub, if it has to be downloaded first."""
    head: HeadKind = "labels"
    """The head or labels that it judges with, if it is a verifier."""
    scores: Scores = "steps"
    """What its head was trained to score."""
    tokenizer: str = ""
    """Where its tokenizer is, as the file is to give it, if it is a GGUF file."""

    @property
    def name(self) -> str:
        """Its common name."""
        return self.repository.rpartition("/")[2] or self.folder.name


@dataclass(frozen=True)
class ServedModel:
    """A model on a server that runs already."""

    url: str
    tokenizer: str
    """A folder as the file is to give it, or OWNER/NAME of the hub."""
    positions: int | None = None
    """Tokens of a prompt and its output together, if the server said so."""
    head: HeadKind = "labels"
    """Its kind is not known: the fields of one that judges with labels are of use to all."""
    api_key_env: str | None = None
    """The environment variable that holds the server's key."""

    @property
    def name(self) -> str:
        """Its common name."""
        return self.tokenizer.rstrip("/").rpartition("/")[2]


@dataclass(frozen=True)
class FunctionModel:
    """A Python function in the place of a verifier."""

    name: str
    """FILE.py:NAME as the file is to give it."""


Model = CompiledModel | ServedModel


@dataclass(frozen=True)
class Choices:
    """What the user has chosen, and defaults for the rest."""

    name: str
    """The name of the deployment."""
    target: Target
    generator: Model
    verifier: Model | FunctionModel
    format: str = "rlhflow"
    """How the verifier is asked: a key of `FORMATS`."""
    why_format: str = ""
    """Why this one, as a sentence."""
    prompt: str = ""
    """The text of formats prompted and graded."""
    system_prompt: str = ""
    """The system message; empty: none, but one is suggested."""

    @property
    def on_gpus(self) -> bool:
        """Whether the engines are for NVIDIA GPUs."""
        return self.target == "tensorrt"

    @property
    def is_started(self) -> bool:
        """Whether the engines are servers that are started."""
        return self.target in STARTED

    @property
    def guessed(self) -> bool:
        """Whether sizes are guesses, as a model that is compiled is of unknown shape."""
        both = (self.generator, self.verifier)
        return any(isinstance(each, CompiledModel) and each.positions is None for each in both)
