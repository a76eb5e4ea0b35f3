"""The commands that make one TensorRT-LLM engine inside NVIDIA's container, and what they refuse.

Pure: nothing is read or run here. Three steps: check the machine, convert or quantise the
checkpoint through TensorRT-LLM's Python API, compile it with trtllm-build. Every value that matters
is passed explicitly: defaults differ between releases, and so a changed value shows in config.json.
What TensorRT-LLM would refuse after hours, or change with a warning only, is refused before
anything is planned or built: a precision that the GPU lacks, a division that the model forbids.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal, NoReturn

from tts.base.errors import CheckpointError, ConfigError

from ..model_config import ModelConfig
from ..spec import PRECISIONS, STARTED, Deployment, EngineSpec, Role
from . import contract, in_container

RECIPE_VERSION = 1
"""Raised when these commands change so that existing engines must be built again."""
SCRIPT = Path(in_container.__file__).resolve()
_PYTHON = ("python3", "-P", str(SCRIPT))  # -P: do not import modules beside the script
StepName = Literal["check", "convert", "quantise", "compile"]


@dataclass(frozen=True)
class BuildStep:
    """One command, and the devices, folders and network that it needs."""

    name: StepName
    command: tuple[str, ...]
    devices: tuple[int, ...]
    reads: tuple[Path, ...] = ()
    writes: tuple[Path, ...] = ()
    network: bool = False
    """Whether it downloads something."""
    isolated: bool = True
    """Whether a step that downloads nothing is denied a network as well."""


@dataclass(frozen=True)
class Workspace:
    """The folder in which the steps of one engine work."""

    root: Path
    timing_cache: Path
    """Kernel timings of earlier builds: read, and replaced after a successful build."""

    @property
    def checkpoint(self) -> Path:
        """The converted checkpoint."""
        return self.root / "checkpoint"

    @property
    def causal(self) -> Path:
        """The checkpoint of a verifier with a head, written again as a causal model."""
        return self.root / "causal"

    @property
    def engine(self) -> Path:
        """The compiled engine."""
        return self.root / "engine"

    @property
    def new_timings(self) -> Path:
        """The timing cache that this build writes."""
        return self.root / "timing.cache"

    @property
    def home(self) -> Path:
        """Home folder inside the container, where a downloaded calibration set is kept."""
        return self.root / "home"


def steps(
    deployment: Deployment, role: Role, model: ModelConfig, work: Workspace
) -> list[BuildStep]:
    """The steps for one engine, in order; raises ConfigError if it cannot be built."""
    spec = deployment.engines()[role]
    check_engine(deployment, role, model)
    return [
        _check(deployment, spec, work),
        _conversion(spec, model, work),
        _compilation(spec, model, work),
    ]


def quantisation(spec: EngineSpec) -> tuple[str | None, str | None]:
    """TensorRT-LLM's names for the precision of the weights and of the KV cache; None: 16 bits."""
    algorithm = {"fp8": "FP8", "int8": "W8A16", "int4_awq": "W4A16_AWQ"}.get(spec.precision)
    return algorithm, "FP8" if spec.placement.kv_precision == "fp8" else None


def activation_dtype(spec: EngineSpec, model: ModelConfig) -> str:
    """The type that is computed in, where it is not fp8.

    Quantised engines keep the checkpoint's own 16-bit type; fp32 weights go to bf16, whose range
    they fit (TensorRT-LLM's "auto" would take fp16).
    """
    if spec.precision in ("fp16", "bf16"):
        return {"fp16": "float16", "bf16": "bfloat16"}[spec.precision]
    return "float16" if model.dtype == "float16" else "bfloat16"


def is_calibrated(spec: EngineSpec) -> bool:
    """Whether the weights are quantised with scales measured on a calibration set."""
    return spec.precision in ("fp8", "int4_awq")


def splits_embedding(spec: EngineSpec) -> bool:
    """Whether each tensor-parallel rank keeps its share of the embedding, rather than all of it.

    It is split like the output matrix, which may share its rows. The quantiser has no such choice.
    """
    return spec.placement.tensor_parallel > 1 and not is_calibrated(spec)


def calibration_folder(spec: EngineSpec) -> Path | None:
    """The local calibration folder, or None when the set is one that is downloaded by name."""
    dataset = spec.placement.calibration.dataset
    folder = Path(dataset).expanduser()
    # abisee/cnn_dailymail too
    is_name = any(name in dataset for name in contract.calibration_sets())
    return None if is_name and not folder.is_absolute() else folder


def check_calibration(spec: EngineSpec) -> None:
    """Refuse a local calibration folder that is not there, or that brings code to run."""
    if not is_calibrated(spec) or (folder := calibration_folder(spec)) is None:
        return
    if not folder.is_dir():
        raise ConfigError(f"There is no calibration folder {folder}.")
    if scripts := sorted(folder.glob("*.py")):
        raise CheckpointError(
            f"The calibration folder {folder} holds Python code ({scripts[0].name}), which "
            "TensorRT-LLM's quantiser would run.",
            hint="Keep only the data files there (JSON lines or Parquet with a column text).",
        )


def build_values(spec: EngineSpec, model: ModelConfig) -> dict[str, str]:
    """The flags of trtllm-build that determine the engine; a switch has the value "".

    An engine that writes decodes: many requests, a token of each per step, so kernels are tuned for
    a full batch of single tokens (opt_num_tokens). A verifier that does not only reads prompts: few
    requests fill max_num_tokens, and that is what its kernels are tuned for.
    """
    fp8 = spec.precision == "fp8"
    quantised, kv_quantised = quantisation(spec)
    max_num_tokens = _max_num_tokens(spec)
    values = {
        "--max_batch_size": str(spec.max_batch_size),
        "--max_input_len": str(spec.max_seq_len),  # the default is 1024
        "--max_seq_len": str(spec.max_seq_len),
        "--max_num_tokens": str(max_num_tokens),
        "--opt_num_tokens": str(
            min(spec.max_batch_size, max_num_tokens) if spec.writes else max_num_tokens
        ),
        "--max_beam_width": "1",  # search branches by requests, not by beams inside the engine
        "--kv_cache_type": "paged",
        "--tokens_per_block": str(spec.kv_cache.block_size),
        "--remove_input_padding": "enable",  # with paging: what batching in flight needs
        "--gpt_attention_plugin": "auto",
        "--context_fmha": "enable",
        "--use_paged_context_fmha": "enable",  # KV reuse and chunked context need it
        # Where the builder would force it on or off.
        "--use_fp8_context_fmha": "enable" if fp8 and kv_quantised else "disable",
        # cuBLASLt for 16-bit products; fp8 products by TensorRT itself, as NVIDIA advises.
        "--gemm_plugin": "disable" if fp8 else "auto",
        "--use_fused_mlp": "enable" if fp8 or not quantised else "disable",
        "--multiple_profiles": "disable",  # excludes opt_num_tokens
        # Quantised checkpoints say float16, whose rounding would tie saturated scores.
        "--logits_dtype": "float32",
    }
    if model.experts:
        values["--moe_plugin"] = "auto"
    if spec.judges:
        # Deprecated for an option at run time that Triton's backend never sets.
        values["--gather_generation_logits"] = ""
    return values


def expected_engine(spec: EngineSpec, model: ModelConfig) -> dict[str, object]:
    """Values required in the engine's config.json, by the names of the contract's engine fields."""
    quant_algo, kv_quant_algo = quantisation(spec)
    place = spec.placement
    expected: dict[str, object] = {
        "gather_generation_logits": False,
        "dtype": activation_dtype(spec, model),
        "quant_algo": quant_algo,
        "kv_cache_quant_algo": kv_quant_algo,
        "tp_size": place.tensor_parallel,
        "pp_size": place.pipeline_parallel,
        "world_size": place.ranks,
    }
    if place.expert_parallel > 1:
        expected["moe_ep_size"] = place.expert_parallel
    for flag, value in build_values(spec, model).items():
        if (name := flag.removeprefix("--")) in contract.engine_fields():
            expected[name] = _recorded(value)
    return expected


def check_engine(deployment: Deployment, role: Role, model: ModelConfig) -> None:
    """Refuse what TensorRT-LLM would refuse hours later, or change with a warning only."""
    spec = deployment.engines()[role]
    where = f"Deployment {deployment.name!r}: {role}"
    check_feasible(deployment, role, model)
    if model.architecture not in contract.model_classes():
        raise ConfigError(
            f"{where}: there is no conversion of {model.architecture} to TensorRT-LLM; known are "
            f"{', '.join(contract.model_classes())}.",
            hint=f"Set {role}.checkpoint to a model of one of these.",
        )
    if _max_num_tokens(spec) < spec.kv_cache.block_size:
        raise ConfigError(
            f"{where} computes at most {_max_num_tokens(spec)} tokens in a step, less than a KV "
            f"block of {spec.kv_cache.block_size}; raise max_num_tokens, max_batch_size or "
            "max_seq_len.",
            hint=f"Or lower {role}.kv_cache.block_size.",
        )
    if spec.placement.expert_parallel > 1 and is_calibrated(spec):
        raise ConfigError(
            f"{where}.tensorrt.expert_parallel is {spec.placement.expert_parallel} with precision "
            f"{spec.precision!r}: TensorRT-LLM's quantiser does not split experts over GPUs.",
            hint="Use tensor parallelism alone, or precision bf16, fp16 or int8.",
        )
    folder = calibration_folder(spec) if is_calibrated(spec) else None
    if folder and not folder.is_absolute():
        raise ConfigError(
            f"{where}.tensorrt.calibration.dataset is {str(folder)!r}: neither a set that is "
            f"known by name ({', '.join(contract.calibration_sets())}) nor an absolute path.",
            hint="Name one of these sets, or write the folder's whole path.",
        )


def check_feasible(deployment: Deployment, role: Role, model: ModelConfig) -> None:
    """Raise ConfigError for an engine that cannot be on the deployment's kind of GPU."""
    if deployment.target not in STARTED:
        _require_convertible(deployment, role, model)
        gpu, precision = deployment.tensorrt_block.gpu, deployment.engines()[role].precision
        if problem := contract.precision_problem(gpu, precision):
            able = [p for p in PRECISIONS["tensorrt"] if contract.precision_problem(gpu, p) is None]
            raise ConfigError(
                f"Deployment {deployment.name!r}: {role}.precision is {precision!r} on {gpu}: "
                f"{problem}.",
                hint=f"Set {role}.precision to one that {gpu} has ({', '.join(able)}), or "
                "tensorrt.gpu to another GPU.",
            )
    _check_parallelism(deployment, role, model)


def _check_parallelism(deployment: Deployment, role: Role, model: ModelConfig) -> None:
    placement = deployment.engines()[role].placement
    tensor, pipeline = placement.tensor_parallel, placement.pipeline_parallel
    ways, experts = placement.expert_parallel, model.experts

    def refuse(field: str, value: int, why: str) -> NoReturn:
        where = f"{role}.{field}" if deployment.target in STARTED else f"{role}.tensorrt.{field}"
        raise ConfigError(
            f"Deployment {deployment.name!r}: {where} is {value}{why}.",
            hint=f"Choose a {where} that fits the model.",
        )

    if model.num_layers < pipeline:
        refuse("pipeline_parallel", pipeline, f", but the model has {model.num_layers} layers")
    if model.num_heads % tensor:
        heads = f"the model's {model.num_heads} attention heads"
        refuse("tensor_parallel", tensor, f"; it must divide {heads}")
    if model.num_kv_heads % tensor and tensor % model.num_kv_heads:
        heads = f"the model's {model.num_kv_heads} key/value heads"
        refuse("tensor_parallel", tensor, f"; it must divide {heads}, or be a multiple of them")
    if ways > 1 and experts is None:
        refuse("expert_parallel", ways, ", but the model has no experts")
    if experts and experts.count % ways:
        refuse("expert_parallel", ways, f"; it must divide the model's {experts.count} experts")
    width = experts.intermediate_size if experts else model.intermediate_size
    if width % (tensor // ways):
        refuse("tensor_parallel", tensor, f", but the model's MLP is {width} wide")


def _require_convertible(deployment: Deployment, role: Role, model: ModelConfig) -> None:
    """Raise ConfigError for a head that the target cannot compute."""
    head = model.head
    if head is None or len(head.layers) == 1:
        return
    raise ConfigError(
        f"Deployment {deployment.name!r}: {role} judges with {head.text}, which target "
        f"{deployment.target} cannot compute: its engines end in one matrix, which has no place "
        "for the ReLU between two layers.",
        hint="Use a verifier that answers with label tokens, target openvino, or vLLM by url "
        "(docs/reference/verifiers.md).",
    )


def _check(deployment: Deployment, spec: EngineSpec, work: Workspace) -> BuildStep:
    devices = spec.placement.replicas[0]
    return BuildStep(
        "check",
        (
            *_PYTHON,
            "check",
            *("--tensorrt-llm", contract.TENSORRT_LLM),
            *("--compute-capability", contract.compute_capability(deployment.tensorrt_block.gpu)),
            *("--gpus", str(len(devices))),
        ),
        devices=devices,
        reads=(SCRIPT,),
        writes=(work.root,),
    )


def _conversion(spec: EngineSpec, model: ModelConfig, work: Workspace) -> BuildStep:
    place = spec.placement
    quant_algo, kv_quant_algo = quantisation(spec)
    source = work.causal if model.head else spec.checkpoint
    command = [
        *_PYTHON,
        "convert",
        *("--checkpoint", str(source)),
        *("--output", str(work.checkpoint)),
        *("--model-class", contract.model_classes()[model.architecture]),
        *("--dtype", activation_dtype(spec, model)),
        *("--tensor-parallel", str(place.tensor_parallel)),
        *("--pipeline-parallel", str(place.pipeline_parallel)),
        *("--expert-parallel", str(place.expert_parallel)),
    ]
    if splits_embedding(spec):
        command.append("--split-embedding")
    if quant_algo:
        command += ["--quant-algo", quant_algo]
    if kv_quant_algo:
        command += ["--kv-cache-quant-algo", kv_quant_algo]
    reads: tuple[Path, ...] = (SCRIPT, source)
    writes, devices = (work.root,), place.replicas[0]
    if not is_calibrated(spec):
        return BuildStep("convert", tuple(command), devices, reads, writes)
    folder = calibration_folder(spec)
    command += [
        *("--calibration-set", str(folder or place.calibration.dataset)),
        *("--calibration-samples", str(place.calibration.samples)),
        *("--calibration-length", str(place.calibration.max_length)),
    ]
    if folder:
        reads = (*reads, folder)
    return BuildStep("quantise", tuple(command), devices, reads, writes, network=folder is None)


def _compilation(spec: EngineSpec, model: ModelConfig, work: Workspace) -> BuildStep:
    devices = spec.placement.replicas[0]
    arguments = ["--checkpoint_dir", str(work.checkpoint), "--output_dir", str(work.engine)]
    for flag, value in build_values(spec, model).items():
        arguments += [flag, value] if value else [flag]
    arguments += [
        *("--workers", str(len(devices))),  # one rank per GPU at a time
        *("--input_timing_cache", str(work.timing_cache)),  # a missing one is no error
        *("--output_timing_cache", str(work.new_timings)),
    ]
    return BuildStep(
        "compile",
        ("trtllm-build", *arguments),
        devices,
        reads=(work.timing_cache.parent,),
        writes=(work.root,),
    )


def _max_num_tokens(spec: EngineSpec) -> int:
    """max_num_tokens, or fewer if the batch cannot hold as many: the builder would clip it."""
    return min(spec.max_num_tokens, spec.max_batch_size * spec.max_seq_len)


def _recorded(value: str) -> object:
    if value.isdecimal():
        return int(value)
    return {"enable": True, "disable": False, "": True}.get(value, value)
