"""A section whose target is a server that `tts` plans, starts and supervises."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import Field, model_validator

from tts.base.choices import StartedTarget

from .generator import GeneratorRole
from .role import RoleSpec
from .section import Count, FilePath, Parallel
from .server import Port
from .tensorrt import Device
from .verifier import VerifierRole

GGUF = ".gguf"
SHARED_FIELDS = ("target", "checkpoint", "tokenizer", "max_seq_len")
"""Fields that a verifier `same_as: generator` has from a started generator."""


class StartedSpec(RoleSpec):
    """An engine that is started with a command line. Field names are those of compiled engines."""

    tokenizer_field: ClassVar[str] = "tokenizer"

    target: StartedTarget
    """The engine. A section that names none has the deployment's."""
    checkpoint: FilePath
    """Hugging Face checkpoint folder, relative to the deployment file, or OWNER/NAME on the hub;
    for llama.cpp a GGUF file."""
    tokenizer: FilePath | None = None
    """The folder of its tokenizer.json, or OWNER/NAME on the hub; unset: the checkpoint."""
    precision: Literal["auto", "fp32", "fp16", "bf16", "fp8"] = "auto"
    """Weights; auto: as the checkpoint has them, quantised ones included. fp8 quantises at load
    (vllm and sglang)."""
    max_batch_size: Count | None = None
    """Upper bound of sequences in the engine; unset: what the orchestrator keeps in flight."""
    max_num_tokens: Count | None = None
    """Upper bound of tokens per engine step, prompt and generation together; unset: 2048 of a
    generator, which bounds how long a prompt holds up the others, 8192 of a verifier."""
    kv_gib: Annotated[float, Field(gt=0, le=1e5)] | None = None
    """KV cache on each of its GPUs, or in this machine's memory, in GiB; unset: planned."""
    tensor_parallel: Parallel = 1
    """GPUs among which every matrix is divided."""
    gpus: tuple[Device, ...] = ()
    """Its GPUs; unset: 0, 1, ..."""
    threads: Parallel | None = None
    """CPU threads of an engine that runs on CPUs (vllm, llama.cpp); unset: as many as it takes."""
    port: Port = "auto"
    """The port on which it listens; auto: a free one."""
    executable: FilePath | None = None
    """The engine's program, such as /opt/vllm/bin/vllm; unset: found on PATH."""
    container: Annotated[str, Field(min_length=1)] | None = None
    """The image in which it runs, such as vllm/vllm-openai:v0.33.0; unset: none."""
    extra_args: tuple[str, ...] = ()
    """Words at the end of the engine's command line."""

    @property
    def tokenizer_folder(self) -> Path:
        """The folder of its tokenizer.json and chat template."""
        return self.tokenizer or self.checkpoint

    @property
    def devices(self) -> tuple[int, ...]:
        """Its GPUs, in rank order."""
        return self.gpus or tuple(range(self.tensor_parallel))

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if self.gpus and len(set(self.gpus)) != self.tensor_parallel:
            raise ValueError(
                f"gpus names {list(self.gpus)}; it must name {self.tensor_parallel} different "
                "devices (tensor_parallel)"
            )
        if self.executable and self.container:
            raise ValueError("executable and container are both given; remove one")
        if (self.checkpoint.suffix == GGUF) and self.target != "llama.cpp":
            raise ValueError(f"checkpoint is a GGUF file, which target {self.target} does not load")
        if (self.checkpoint.suffix == GGUF) and self.tokenizer is None:
            raise ValueError(
                "checkpoint is a GGUF file, so tokenizer is required: the folder of the original "
                "model's tokenizer.json, or its OWNER/NAME on the hub"
            )
        return self


class StartedGenerator(GeneratorRole, StartedSpec):
    """An LLM that writes steps, on a server that is started for it."""


class StartedVerifier(VerifierRole, StartedSpec):
    """A verifier on a server that is started for it; with `same_as` that is the generator's."""

    @model_validator(mode="before")
    @classmethod
    def _has_no_engine_of_its_own(cls, data: Any) -> Any:
        if not isinstance(data, dict) or data.get("same_as") is None:
            return data
        engine = StartedSpec.model_fields.keys() - RoleSpec.model_fields.keys() - {*SHARED_FIELDS}
        defaults = {name: StartedVerifier.model_fields[name].default for name in engine}
        if stated := [
            name for name in engine if (data.get(name) or defaults[name]) != defaults[name]
        ]:
            raise ValueError(
                f"same_as is {data['same_as']!r:.50}, so {', '.join(sorted(stated))} of the engine "
                "stand in section generator; remove them here"
            )
        return data
