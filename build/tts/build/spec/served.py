"""Sections whose engine is asked by HTTP: one that runs already, at a `url`, or that is started."""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from typing import Annotated, Any, ClassVar, Literal, Self
from urllib.parse import urlsplit

from pydantic import BeforeValidator, Field, WrapValidator, model_validator

from tts.base.choices import StartedTarget
from tts.base.errors import ConfigError

from .engine import Device, EngineSpec
from .generator import GeneratorRole
from .section import Count, FilePath, Parallel, RoleSpec
from .server import Port
from .verifier import VerifierRole

_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_USUAL_VARIABLE = re.compile(r"[A-Z_][A-Z0-9_]*")
GGUF = ".gguf"
SHARED_FIELDS = ("target", "checkpoint", "tokenizer", "max_seq_len")
"""Fields that a verifier `same_as: generator` has from a started generator."""


def _url(value: object) -> object:
    if not isinstance(value, str):
        return value
    try:
        parts = urlsplit(value)
        usable = parts.scheme in ("http", "https") and parts.hostname and parts.port != 0
    except ValueError:
        usable = False
    if not usable or re.search(r"\s", value):
        raise ValueError("must be a URL such as http://localhost:8000")
    if parts.username is not None or parts.query or parts.fragment:
        raise ValueError("must hold neither a user, a query nor a fragment; keys: api_key_env")
    return value.rstrip("/")


Url = Annotated[str, BeforeValidator(_url)]


def _urls(value: object, check: Callable[[object], tuple[str, ...]]) -> tuple[str, ...]:
    urls = check((value,) if isinstance(value, str) else value)
    if len(set(urls)) != len(urls):
        raise ValueError("names a server twice")
    return urls


def key_in(variable: str, named_by: str) -> str:
    """The key in an environment variable; raises ConfigError if it is not there."""
    key = os.environ.get(variable)
    if not key and not _USUAL_VARIABLE.fullmatch(variable):
        raise ConfigError(
            f"{named_by} names no variable of the environment; what it has may be the key itself, "
            "and is not shown.",
            hint="Put the key into a variable, export MY_KEY=..., and name that: MY_KEY.",
        )
    if not key:
        raise ConfigError(
            f"{named_by} names {variable}, which is not in the environment.",
            hint=f"Set it: export {variable}=...",
        )
    if not key.isprintable():  # surrogates, of bytes that are no UTF-8, are not printable either
        raise ConfigError(
            f"{named_by} names {variable}, which has a character that no key has.",
            hint="Set it again, without line ends.",
        )
    return key


class RemoteSpec(RoleSpec):
    """An engine that runs already behind OpenAI's API: its address, and what is known of it."""

    tokenizer_field: ClassVar[str] = "tokenizer"

    url: Annotated[tuple[Url, ...], Field(min_length=1), WrapValidator(_urls)]
    """One URL, or a list of replicas of the same model."""
    model: Annotated[str, Field(min_length=1)] | None = None
    """The model's name at the server; unset: the only one served there."""
    api_key_env: str | None = None
    """The environment variable that holds the server's API key."""
    tokenizer: FilePath
    """The folder of its tokenizer.json, or OWNER/NAME on the Hugging Face hub."""

    @model_validator(mode="before")
    @classmethod
    def _asks_for_what_it_decides(cls, data: Any) -> Any:
        """Errors about the whole section show no value: a key must not be printed."""
        if not isinstance(data, dict):
            return data
        variable = data.get("api_key_env")
        if "api_key" in data or (isinstance(variable, str) and not _VARIABLE.fullmatch(variable)):
            raise ValueError(
                "a key does not belong into the file: put it into an environment variable, and "
                "the variable's name into api_key_env"
            )
        compiled = EngineSpec.model_fields.keys() - RemoteSpec.model_fields.keys()
        if stated := [name for name in data if name in compiled]:
            raise ValueError(
                f"{', '.join(stated)}: whoever started the engine at `url` has decided that; "
                f"remove {'it' if len(stated) == 1 else 'them'}, or remove url to have the model "
                "compiled"
            )
        return data


class RemoteGenerator(GeneratorRole, RemoteSpec):
    """An LLM that writes steps on a server of its own."""


class RemoteVerifier(VerifierRole, RemoteSpec):
    """A verifier on a server of its own; which formats it can score is found by asking it."""


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
