"""The deployment: one YAML file that names both engines, their batching policies and the server."""

from __future__ import annotations

import ipaddress
import re
import shlex
from pathlib import Path
from typing import Annotated, Any, Literal, TypeGuard, get_args

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    PrivateAttr,
    StrictBool,
    ValidationError,
    ValidationInfo,
    field_validator,
    model_validator,
)

from tts.compat import Self

from . import paths
from .errors import ConfigError
from .input_files import Unreadable, is_file, read_text, require_path
from .yaml_text import parse_yaml

Target = Literal["openvino", "tensorrt", "llmapi"]
Role = Literal["generator", "verifier"]
Precision = Literal["fp32", "fp16", "bf16", "fp8", "int8", "int4_awq"]
HeadKind = Literal["labels", "classification", "value"]
"""What a verifier judges with: labels of its language head, or a head (verifier_head.py)."""
Gpu = Literal["a100-40g", "a100-80g", "l40s", "h100", "h200", "b200", "rtx4090"]
Count = Annotated[int, Field(strict=True, ge=1, le=2**31 - 1)]
"""What TensorRT-LLM and the wire hold as int32."""
Parallel = Annotated[int, Field(strict=True, ge=1, le=1024)]
"""A number of GPUs or CPU threads that one machine may have."""
Device = Annotated[int, Field(strict=True, ge=0, lt=1024)]


def _port(value: object) -> object:
    if value != "auto" and (type(value) is not int or not 1 <= value <= 65535):
        raise ValueError("must be auto or a port number from 1 to 65535")
    return value


# One validator instead of a union's two, whose errors would name types that no user wrote.
Port = Annotated[int | Literal["auto"], BeforeValidator(_port)]
HttpPort = Annotated[
    int | Literal["auto", "off"],
    BeforeValidator(lambda value: "off" if value is False or value == "off" else _port(value)),
]
"""A port, or "off", which YAML reads as false."""


def _path(value: object) -> object:
    if isinstance(value, str):
        require_path(value)
    return value


FilePath = Annotated[Path, BeforeValidator(_path)]

_HOST_NAME = re.compile(r"(?!-)[A-Za-z0-9-]{1,63}(?<!-)(\.(?!-)[A-Za-z0-9-]{1,63}(?<!-))*")


def _host(value: object) -> object:
    """An IPv4 address, as Triton listens on IPv4 only, or a host name (RFC 1123)."""
    if isinstance(value, str):
        try:
            ipaddress.IPv4Address(value)
        except ValueError:
            last = value.rpartition(".")[2]
            if len(value) > 253 or last.isdigit() or not _HOST_NAME.fullmatch(value):
                raise ValueError("must be an IPv4 address or a host name") from None
    return value


Host = Annotated[str, BeforeValidator(_host)]


def _scalar(value: object) -> object:
    if not isinstance(value, (bool, int, float, str)):
        raise ValueError("must be a number, a text, true or false")
    return value


Parameter = Annotated[Any, BeforeValidator(_scalar)]
"""A strategy's parameter; the orchestrator checks its value."""

PRECISIONS: dict[Target, tuple[Precision, ...]] = {
    "openvino": ("fp32", "bf16", "int8"),
    "tensorrt": ("fp16", "bf16", "fp8", "int8", "int4_awq"),  # the last two: weights only
    "llmapi": ("fp16", "bf16"),  # as the checkpoint is loaded; quantised ones are not read yet
}
MAX_BYTES = 1_000_000
"""Of a deployment file."""
MAX_LINES = 20
"""Mistakes that one error lists."""
OPENVINO_BLOCK_SIZE = 32  # the only one of the CPU plug-in's paged attention


class _Model(BaseModel):
    model_config = ConfigDict(
        extra="forbid", frozen=True, validate_default=True, allow_inf_nan=False
    )


class KvCache(_Model):
    """The paged KV cache of one engine."""

    block_size: Count = 32
    """Tokens per block (TensorRT-LLM: tokens_per_block, a power of two)."""
    tokens: Annotated[int, Field(strict=True, ge=1, le=10**9)]
    """Size of the whole pool, in tokens (max_tokens_in_paged_kv_cache)."""
    reuse: StrictBool = True
    """Keep finished prefixes and serve them to later requests (enable_kv_cache_reuse)."""

    @property
    def blocks(self) -> int:
        """Number of whole blocks in the pool."""
        return self.tokens // self.block_size

    @model_validator(mode="after")
    def _power_of_two(self) -> Self:
        if self.block_size & (self.block_size - 1):
            raise ValueError(f"block_size is {self.block_size}; it must be a power of two")
        return self


class Calibration(_Model):
    """The data on which fp8 and int4_awq, which need activation scales, are calibrated."""

    dataset: Annotated[str, Field(min_length=1)] = "cnn_dailymail"
    """A set that TensorRT-LLM's quantiser knows by name, or a local folder."""
    samples: Count = 512
    max_length: Count = 512
    """Upper bound of a sample's tokens."""


class TensorRTEngine(_Model):
    """What only an engine of TensorRT-LLM has (targets tensorrt and llmapi)."""

    tensor_parallel: Parallel = 1
    pipeline_parallel: Parallel = 1
    expert_parallel: Parallel = 1
    """Among how many groups of the tensor-parallel ranks experts are divided (MoE only)."""
    gpus: tuple[tuple[Device, ...], ...] = ()
    """Devices of each replica, one per rank; none given: one replica on devices 0, 1, ..."""
    kv_precision: Literal["auto", "fp8"] = "auto"
    """auto: 16 bits, as the activations. fp8 needs fp8 weights, or KV reuse would be lost."""
    kv_host_gib: Annotated[float, Field(ge=0)] = 0.0
    """Host memory to which KV blocks are offloaded, GiB."""
    calibration: Calibration = Calibration()

    @property
    def ranks(self) -> int:
        """GPUs of one replica."""
        return self.tensor_parallel * self.pipeline_parallel

    @property
    def replicas(self) -> tuple[tuple[int, ...], ...]:
        """Devices of every replica, in rank order."""
        return self.gpus or (tuple(range(self.ranks)),)

    @model_validator(mode="after")
    def _placed(self) -> Self:
        if self.tensor_parallel % self.expert_parallel:
            raise ValueError(
                f"expert_parallel is {self.expert_parallel}; it must divide tensor_parallel "
                f"({self.tensor_parallel})"
            )
        for devices in self.gpus:
            if len(devices) != self.ranks or len(set(devices)) != len(devices):
                raise ValueError(
                    f"gpus names {list(devices)} for a replica; it must name {self.ranks} "
                    "different devices (tensor_parallel x pipeline_parallel)"
                )
        return self


class EngineSpec(_Model):
    """What both engines have in common. Field names are TensorRT-LLM's where it has them."""

    checkpoint: FilePath
    """Hugging Face checkpoint folder; relative paths are relative to the deployment file."""
    precision: Precision
    max_batch_size: Count
    """Upper bound of active requests in the engine."""
    max_num_tokens: Count
    """Upper bound of tokens scheduled per engine step, prompt and generation together."""
    max_seq_len: Count
    """Upper bound of one request's prompt plus output, in tokens."""
    kv_cache: KvCache
    scheduling_policy: Literal["guaranteed_no_evict", "max_utilization"] = "guaranteed_no_evict"
    chunked_context: StrictBool = True
    """Let a long prompt be computed over several steps (enable_chunked_context)."""
    threads: Parallel | None = None
    """CPU threads of the engine (target openvino only; default 1)."""
    tensorrt: TensorRTEngine | None = None
    """Parallelism, placement and quantisation (targets tensorrt and llmapi)."""

    @property
    def placement(self) -> TensorRTEngine:
        """The block tensorrt, or its defaults where there is none."""
        return self.tensorrt or TensorRTEngine()

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if self.kv_cache.blocks * self.kv_cache.block_size < self.max_seq_len:
            raise ValueError(
                f"kv_cache.tokens is {self.kv_cache.tokens} but max_seq_len is {self.max_seq_len}; "
                "the pool must hold at least one full sequence of whole blocks"
            )
        if not self.chunked_context and self.max_num_tokens < self.max_seq_len:
            raise ValueError(
                f"chunked_context is false, so max_num_tokens ({self.max_num_tokens}) must be at "
                f"least max_seq_len ({self.max_seq_len}): a prompt has to fit into one step"
            )
        return self


class GeneratorSpec(EngineSpec):
    """The LLM that writes steps."""

    in_flight_requests: Count
    """Upper bound of requests that the orchestrator keeps in flight (N_LLM)."""
    system_prompt: str | None = None
    step_delimiter: Annotated[str, Field(min_length=1)] = "\n\n"
    """A step ends where this string appears in the text."""
    guided_decoding: StrictBool = False
    """Let searches say what an answer must look like (guided_decoding_backend: xgrammar)."""


class Labels(_Model):
    """The two label strings of the verifier; each must be one token of its tokenizer."""

    positive: Annotated[str, Field(min_length=1)] = "+"
    negative: Annotated[str, Field(min_length=1)] = "-"

    @model_validator(mode="after")
    def _differ(self) -> Self:
        if self.positive == self.negative:
            raise ValueError(f"positive and negative are both {self.positive!r}; they must differ")
        return self


ANSWERS = {"positive": "Yes", "negative": "No"}
"""The labels of format prompted unless the deployment names others."""


class Template(_Model):
    """The dialogue of a verifier of format custom; the texts are sent verbatim.

    It reads: head, first step, answer, turn, second step, answer, ... ; a step's score is read
    right after its `answer`.
    """

    head: str
    """Everything before the first step; {question} stands for the question."""
    answer: str
    """What follows a step, up to where its score is read."""
    turn: str
    """What follows up to the next step; {label} in front stands for the positive label."""

    @field_validator("head")
    @classmethod
    def _asks(cls, head: str) -> str:
        if head.count("{question}") != 1:
            raise ValueError("must hold {question} exactly once")
        return head

    @field_validator("head", "answer", "turn")
    @classmethod
    def _places(cls, text: str, info: ValidationInfo) -> str:
        allowed = {"head": "{question}", "turn": "{label}"}.get(info.field_name or "")
        for place in {"{question}", "{label}", "{step}"} - {allowed}:
            if place in text:
                raise ValueError(f"must not hold {place}")
        if "{label}" in text.removeprefix("{label}"):
            raise ValueError("may hold {label} once, at its very beginning")
        return text


VerifierDialogue = Literal[
    "rlhflow",
    "math-shepherd",
    "custom",
    "qwen2.5-math-prm",
    "skywork-o1-prm",
    "prompted",
    "likelihood",
]
PROMPT_PLACES = ("{question}", "{steps}", "{step}")
"""What a prompt holds, in this order: the KV cache then serves all but the end of it."""


class VerifierSpec(EngineSpec):
    """The process reward model that scores steps."""

    in_flight_tokens: Count
    """Upper bound of prompt tokens that the orchestrator keeps in flight (N_PRM)."""
    group_tokens: Count | None = None
    """Hold requests back until they have so many tokens, or a group of siblings is complete."""
    group_wait_ms: Annotated[float, Field(gt=0, le=10_000)] = 10.0
    """Longest time for which a request is held back (with group_tokens only)."""
    format: VerifierDialogue = "rlhflow"
    """How questions and steps are presented to it (docs/verifiers.md)."""
    head: HeadKind | None = None
    """What it judges with; None: what the architecture in its config.json says."""
    step_tag: Annotated[str, Field(min_length=1)] | None = None
    """The token after which a step's score is read (format math-shepherd only; default "ки")."""
    template: Template | None = None
    """The dialogue of format custom."""
    prompt_file: FilePath | None = None
    """The file of `prompt`, relative to the deployment file; `load_deployment` reads it."""
    prompt: Annotated[str, Field(max_length=100_000)] | None = None
    """What an instruct model is asked of a step (format prompted only); see PROMPT_PLACES."""
    system_prompt: str | None = None
    """What the model is told before the question (format likelihood only)."""
    labels: Labels = Labels()

    @model_validator(mode="before")
    @classmethod
    def _answers_of_a_prompt(cls, data: Any) -> Any:
        if isinstance(data, dict) and data.get("format") == "prompted" and "labels" not in data:
            return data | {"labels": ANSWERS}
        return data

    @field_validator("prompt")
    @classmethod
    def _asks(cls, prompt: str | None) -> str | None:
        return prompt if prompt is None else _checked_prompt(prompt)

    @model_validator(mode="after")
    def _fields_of_its_format(self) -> Self:
        if self.step_tag is not None and self.format != "math-shepherd":
            raise ValueError(
                f"step_tag is {self.step_tag!r}, but format is {self.format}; only format "
                "math-shepherd has a step tag"
            )
        if self.template is not None and self.format != "custom":
            raise ValueError(
                f"template is given, but format is {self.format}; only format custom has one"
            )
        if self.template is None and self.format == "custom":
            raise ValueError("format is custom, so template is required: head, answer and turn")
        if self.format != "prompted" and (self.prompt_file or self.prompt is not None):
            raise ValueError(
                f"a prompt is given, but format is {self.format}; only format prompted has one"
            )
        if self.format == "prompted" and self.prompt_file is None and self.prompt is None:
            raise ValueError(
                "format is prompted, so prompt_file is required: the text that asks whether a step "
                "is right (docs/verifiers.md)"
            )
        if self.format != "likelihood" and self.system_prompt is not None:
            raise ValueError(
                f"system_prompt is given, but format is {self.format}; only format likelihood has "
                "one"
            )
        if self.format == "likelihood" and self.labels != Labels():
            raise ValueError("labels are given, but format likelihood reads none; remove them")
        return self

    @model_validator(mode="after")
    def _budget(self) -> Self:
        if self.in_flight_tokens < self.max_seq_len:
            raise ValueError(
                f"in_flight_tokens is {self.in_flight_tokens} but max_seq_len is "
                f"{self.max_seq_len}; the budget must let one full request through"
            )
        return self


def _checked_prompt(prompt: str) -> str:
    """A prompt without white space around it, which chat templates strip; raises ValueError."""
    rest = prompt
    for place in PROMPT_PLACES:
        _, found, rest = rest.partition(place)
        if not found or prompt.count(place) > 1:
            raise ValueError(
                f"must hold {', '.join(PROMPT_PLACES)} once each, in this order; {place} "
                + ("comes twice" if prompt.count(place) > 1 else "is not where it should be")
            )
    return prompt.strip()


Image = Annotated[str, Field(max_length=255, pattern=r"^[A-Za-z0-9][A-Za-z0-9_./:@-]*$")]
"""The name of a container image, with its registry and tag."""


class TensorRTSpec(_Model):
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


def _endpoint(value: object) -> str:
    if isinstance(value, str) and re.fullmatch(ENDPOINT, value):
        return value
    raise ValueError(f"{value!r:.100} is not HOST:PORT")


ENDPOINT = r"[A-Za-z0-9._-]+:\d{1,5}|unix:/\S+"
"""Where gRPC listens: HOST:PORT, or a Unix domain socket."""
Endpoint = Annotated[str, BeforeValidator(_endpoint)]
PORT_STEP = 10
"""From a given port of one replica on a machine to that of the next."""


class ServerSpec(_Model):
    """Addresses of the Triton server."""

    host: Host = "127.0.0.1"
    grpc_port: Port = "auto"
    """A port opens TCP; "auto" is a Unix domain socket of this user, if `host` is loopback."""
    http_port: HttpPort = "off"
    metrics_port: Port = "auto"

    @model_validator(mode="after")
    def _distinct(self) -> Self:
        ports = (self.grpc_port, self.http_port, self.metrics_port)
        given = [port for port in ports if isinstance(port, int)]
        if len(set(given)) != len(given):
            raise ValueError("grpc_port, http_port and metrics_port must differ")
        return self


class Deployment(_Model):
    """Both engines, their batching policies, the server. The one thing a user edits."""

    name: Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9._-]{0,63}$")]
    target: Target
    generator: GeneratorSpec
    verifier: VerifierSpec
    server: ServerSpec = ServerSpec()
    endpoints: tuple[Endpoint, ...] = ()
    """Where it is served, if by others than this machine: every client uses all of them."""
    tensorrt: TensorRTSpec | None = None
    """GPU and container (targets tensorrt and llmapi, which require it)."""
    strategies: dict[str, dict[str, Parameter]] = {}
    """Strategy -> parameter -> value: defaults of searches on this deployment, not of engines."""
    _named: str | None = PrivateAttr(default=None)
    _folder: Path | None = PrivateAttr(default=None)
    _replica: int = PrivateAttr(default=1)

    def replica(self, number: int) -> Deployment:
        """The same deployment as its `number`th server on this machine, counted from 1.

        It has files and a socket of its own; given ports are PORT_STEP further for each.
        """
        shift = PORT_STEP * (number - self._replica)
        ports = {
            name: port + shift
            for name in ("grpc_port", "http_port", "metrics_port")
            if isinstance(port := getattr(self.server, name), int)
        }
        copy = self.model_copy(update={"server": self.server.model_copy(update=ports)})
        copy._replica = number
        return copy

    @property
    def number(self) -> int:
        """Which replica it is, counted from 1."""
        return self._replica

    @property
    def server_name(self) -> str:
        """What its server's files are named for: `demo`, and `demo@2` of the second replica."""
        return self.name if self._replica == 1 else f"{self.name}@{self._replica}"

    @property
    def folder(self) -> Path | None:
        """Where its file lies and relative paths start; None if it was not read from a file."""
        return self._folder

    @property
    def named(self) -> str:
        """What commands are given to mean this deployment: the file or the bundled name."""
        return shlex.quote(self._named or self.name)

    @model_validator(mode="after")
    def _fits_target(self) -> Self:
        for role, engine in self.engines().items():
            allowed = PRECISIONS[self.target]
            if engine.precision not in allowed:
                raise ValueError(
                    f"{role}.precision is {engine.precision!r}; "
                    f"target {self.target} allows {', '.join(allowed)}"
                )
            if self.target == "openvino":
                self._fits_openvino(role, engine)
            else:
                self._fits_tensorrt(role, engine)
        if self.target != "openvino" and self.tensorrt is None:
            raise ValueError(
                f"target {self.target} needs the block tensorrt, with the gpu to build for"
            )
        if self.target == "llmapi" and self.generator.guided_decoding:
            raise ValueError(
                "generator.guided_decoding is for targets openvino and tensorrt: LLM(...) matches "
                "grammars against its own tokenizer, and it is opened without one "
                "(skip_tokenizer_init)"
            )
        if self.target == "openvino" and self.tensorrt is not None:
            raise ValueError("the block tensorrt is for targets tensorrt and llmapi; remove it")
        if self.target == "tensorrt" and self.tensorrt and self.tensorrt.image:
            raise ValueError(
                "tensorrt.image applies to target llmapi only; engines are built for the versions "
                "of tensorrt.container"
            )
        if self.target == "llmapi" and self.tensorrt and self.tensorrt.launcher != "auto":
            raise ValueError(
                "tensorrt.launcher applies to target tensorrt only; models on LLM(...) start their "
                "own ranks"
            )
        return self

    @staticmethod
    def _fits_tensorrt(role: Role, engine: EngineSpec) -> None:
        if engine.threads is not None:
            raise ValueError(f"{role}.threads applies to target openvino only; remove it")
        if engine.tensorrt and engine.tensorrt.kv_precision == "fp8" and engine.precision != "fp8":
            raise ValueError(
                f"{role}.tensorrt.kv_precision is 'fp8' with precision {engine.precision!r}; "
                "TensorRT-LLM then turns paged context attention off, and with it KV reuse: "
                "use precision fp8, or leave kv_precision at auto"
            )

    @staticmethod
    def _fits_openvino(role: Role, engine: EngineSpec) -> None:
        if engine.tensorrt is not None:
            raise ValueError(f"{role}.tensorrt is for targets tensorrt and llmapi; remove it")
        if engine.kv_cache.block_size != OPENVINO_BLOCK_SIZE:
            raise ValueError(
                f"{role}.kv_cache.block_size is {engine.kv_cache.block_size}; "
                f"target openvino allows {OPENVINO_BLOCK_SIZE}"
            )
        if engine.scheduling_policy != "guaranteed_no_evict":
            raise ValueError(
                f"{role}.scheduling_policy is {engine.scheduling_policy!r}; target openvino allows "
                "guaranteed_no_evict (preemption would make results depend on timing)"
            )

    def engines(self) -> dict[Role, EngineSpec]:
        """Both engine specs by role, generator first."""
        return {"generator": self.generator, "verifier": self.verifier}


def load_deployment(name_or_file: str | Path) -> Deployment:
    """Read a deployment by its file, or by its name when it is a bundled one.

    Checkpoint paths come back absolute. Raises ConfigError naming the field's path, its value and
    what is allowed.
    """
    file = deployment_file(name_or_file)
    try:
        text = read_text(file, MAX_BYTES)
    except (OSError, Unreadable) as error:
        raise ConfigError(f"Cannot read the deployment file {file}: {error}") from error
    try:
        data = parse_yaml(text)
    except Unreadable as error:
        raise ConfigError(f"{file} is not valid YAML: {error}") from error
    if not isinstance(data, dict):
        raise ConfigError(f"{file} must hold a mapping of fields, not {type(data).__name__}")
    try:
        deployment = Deployment.model_validate(data)
    except ValidationError as error:
        raise ConfigError(f"{file} is not a valid deployment:\n{explain(error)}") from error
    deployment = _with_absolute_checkpoints(deployment, file.parent)
    deployment = _with_prompt(deployment, file.parent)
    deployment._named = str(name_or_file)
    deployment._folder = file.parent
    return deployment


def deployment_file(name_or_file: str | Path) -> Path:
    """The file of a deployment, given itself or by a bundled name; raises ConfigError if none."""
    try:
        require_path(str(name_or_file))
    except Unreadable as error:
        raise ConfigError(f"{str(name_or_file)!r:.100} names no deployment: {error}.") from error
    file = Path(name_or_file).expanduser()
    if is_file(file):
        return file.resolve()
    bundled = paths.deployments_dir() / f"{name_or_file}.yaml"
    if file.name == str(name_or_file) and is_file(bundled):
        return bundled
    if file.exists():
        kind = "a folder" if file.is_dir() else "a pipe or a device"
        raise ConfigError(
            f"{file} is {kind}, not a deployment file.",
            hint="Name a YAML file; bundled deployments: "
            f"{', '.join(bundled_deployments()) or 'none'}.",
        )
    raise ConfigError(
        f"There is no deployment {str(name_or_file)!r}: neither a file nor a bundled name.",
        hint=f"Bundled deployments: {', '.join(bundled_deployments()) or 'none'}.",
    )


def bundled_deployments() -> list[str]:
    """Names of the deployments that come with the toolkit."""
    return sorted(file.stem for file in paths.deployments_dir().glob("*.yaml"))


def explain(error: ValidationError, within: str = "") -> str:
    """One line per problem: the field's path (below `within`), its value, and what is allowed."""
    details = error.errors()
    lines = [f"  {_explain_one(detail, within)}" for detail in details[:MAX_LINES]]
    if len(details) > MAX_LINES:
        lines.append(f"  and {len(details) - MAX_LINES:,} more")
    return "\n".join(lines)


_REASONS = {
    "literal_error": "allowed: {expected}",
    "int_type": "must be a whole number",
    "greater_than_equal": "must be at least {ge}",
    "less_than": "must be below {lt}",
    "less_than_equal": "must be at most {le}",
    "finite_number": "must be a finite number",
    "invalid_key": "the name of a field must be a text",
    "bool_type": "must be true or false",
    "string_type": "must be a text",
    "string_too_short": "must not be empty",
    "string_pattern_mismatch": "must match {pattern}",
    "path_type": "must be a path",
    "model_type": "must be a mapping of fields",
    "dict_type": "must be a mapping of fields",
    "missing": "this field is required",
    "value_error": "{error}",
}


def _explain_one(detail: Any, within: str) -> str:
    where = ".".join([within] * bool(within) + [f"{part!s:.100}" for part in detail["loc"]])
    value, kind = detail["input"], str(detail["type"])
    if kind == "extra_forbidden":
        return f"{where} = {value!r:.200}: unknown field; allowed here: {_fields_at(detail)}"
    known = _REASONS.get(kind)
    reason = known.format(**detail.get("ctx", {})) if known else str(detail["msg"])
    if kind == "string_type" and isinstance(value, bool):
        reason += "; put it in quotes, as YAML reads Yes and No as true and false"
    if kind == "literal_error":
        reason = reason.replace(" or ", ", ").replace("'", "")
    if kind == "missing" or isinstance(value, (dict, BaseModel)):
        return f"{where}: {reason}" if where else reason  # the reason names the fields it is about
    return f"{where} = {value!r:.200}: {reason}"


def _fields_at(detail: Any) -> str:
    model: type[BaseModel] = Deployment
    for part in detail["loc"][:-1]:
        annotation = model.model_fields[str(part)].annotation
        models = (a for a in (annotation, *get_args(annotation)) if _is_model(a))
        if (found := next(models, None)) is None:
            return "nothing"
        model = found
    return ", ".join(model.model_fields)


def _is_model(annotation: Any) -> TypeGuard[type[BaseModel]]:
    return isinstance(annotation, type) and issubclass(annotation, BaseModel)


def _with_prompt(deployment: Deployment, base: Path) -> Deployment:
    """The deployment with the text of its verifier's prompt file."""
    verifier = deployment.verifier
    if verifier.prompt_file is None:
        return deployment
    if verifier.prompt is not None:
        raise ConfigError("verifier.prompt and verifier.prompt_file are both given; remove one.")
    file = base / verifier.prompt_file.expanduser()
    try:
        prompt = _checked_prompt(read_text(file, MAX_BYTES))
    except (OSError, ValueError) as error:
        raise ConfigError(
            f"verifier.prompt_file: {file}: "
            + (error.strerror or str(error) if isinstance(error, OSError) else str(error))
            + ".",
            hint="docs/verifiers.md describes the file; engines/deployments/prompts/ has one.",
        ) from error
    update = {"prompt": prompt, "prompt_file": None}  # which is then all there is to know
    return deployment.model_copy(update={"verifier": verifier.model_copy(update=update)})


def _with_absolute_checkpoints(deployment: Deployment, base: Path) -> Deployment:
    def absolute(engine: EngineSpec) -> EngineSpec:
        try:
            checkpoint = (base / engine.checkpoint.expanduser()).resolve()
        except (OSError, RuntimeError) as error:  # a loop of symbolic links
            raise ConfigError(f"The checkpoint {engine.checkpoint} has no path: {error}") from error
        return engine.model_copy(update={"checkpoint": checkpoint})

    return deployment.model_copy(
        update={
            "generator": absolute(deployment.generator),
            "verifier": absolute(deployment.verifier),
        }
    )
