"""Engines that are started: how a file is read, and the command line that follows from it."""

import copy
import json
import shlex
from contextlib import nullcontext
from pathlib import Path

import click
import pytest
import yaml
from scripts import check_commands
from tests.bundled import BUNDLED

from tts.base.errors import ConfigError, TtsError
from tts.build.failures import KNOWN_OF_STARTED, cause_of_end
from tts.build.spec import (
    Deployment,
    RemoteGenerator,
    StartedGenerator,
    StartedVerifier,
    VerifierSpec,
    load_deployment,
)
from tts.build.started.command import command_of
from tts.build.started.engines import ENGINES, unknown_options
from tts.build.started.memory import budgets, plan_started, stored_precision
from tts.build.tensorrt.gpus import GIB

BASE = {
    "name": "pair",
    "target": "vllm",
    "gpu": "h100",
    "generator": {"checkpoint": "Owner/writer", "max_seq_len": 4096, "in_flight_requests": 64},
    "verifier": {"checkpoint": "judge", "max_seq_len": 4096, "in_flight_tokens": 8192},
}
COMPILED = {
    "target": "openvino",
    "checkpoint": "judge",
    "precision": "bf16",
    "max_batch_size": 4,
    "max_num_tokens": 512,
    "max_seq_len": 4096,
    "kv_cache": {"tokens": 4096},
    "in_flight_tokens": 8192,
}
SAME = {"same_as": "generator", "format": "critique", "in_flight_requests": 8}
REMOTE = {"url": "http://a:1", "tokenizer": "x", "max_seq_len": 9, "in_flight_requests": 1}


def read(tmp_path, **changes):
    data = copy.deepcopy(BASE)
    for place, value in changes.items():
        section, _, field = place.partition("__")
        if not field:
            data[section] = value
        elif value is None:
            del data[section][field]
        else:
            data[section][field] = value
    file = tmp_path / "pair.yaml"
    file.write_text(yaml.safe_dump(data))
    return load_deployment(file)


@pytest.mark.parametrize(
    ("changes", "kinds", "started"),
    [
        ({}, (StartedGenerator, StartedVerifier), {"generator": "vllm", "verifier": "vllm"}),
        (
            {"verifier__target": "sglang"},
            (StartedGenerator, StartedVerifier),
            {"generator": "vllm", "verifier": "sglang"},
        ),
        ({"verifier": COMPILED}, (StartedGenerator, VerifierSpec), {"generator": "vllm"}),
        (
            {
                "verifier": {**COMPILED, "target": None},
                "target": "openvino",
                "generator__target": "sglang",
            },
            (StartedGenerator, VerifierSpec),
            {"generator": "sglang"},
        ),
        ({"verifier": SAME}, (StartedGenerator, StartedVerifier), {"generator": "vllm"}),
        (
            {"verifier": SAME, "gpu": None},
            (StartedGenerator, StartedVerifier),
            {"generator": "vllm"},
        ),
        ({"generator": REMOTE}, (RemoteGenerator, StartedVerifier), {"verifier": "vllm"}),
    ],
)  # fmt: skip
def test_each_role_has_an_engine_of_its_own(tmp_path, changes, kinds, started):
    deployment = read(tmp_path, **changes)
    assert (type(deployment.generator), type(deployment.verifier)) == kinds
    assert {role: spec.target for role, spec in deployment.started().items()} == started
    assert deployment.target == ("openvino" if kinds[1] is VerifierSpec else "vllm")
    dumped = deployment.model_dump(mode="json")
    assert Deployment.model_validate(dumped).model_dump(mode="json") == dumped


def test_a_verifier_that_is_the_generators_engine_has_its_model(tmp_path):
    deployment = read(tmp_path, verifier=SAME)
    assert deployment.verifier.checkpoint == deployment.generator.checkpoint
    assert deployment.verifier.max_seq_len == 4096


def test_names_of_the_hub_stay_and_paths_start_at_the_file(tmp_path):
    deployment = read(tmp_path, generator__executable="bin/vllm")
    assert str(deployment.generator.checkpoint) == "Owner/writer"
    assert deployment.generator.executable == tmp_path / "bin" / "vllm"
    assert deployment.verifier.checkpoint == tmp_path / "judge"


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"generator__checkpoint": "a.gguf"}, "a GGUF file, which target vllm does not load"),
        (
            {"generator__checkpoint": "a.gguf", "generator__target": "llama.cpp"},
            "a GGUF file, so tokenizer is required",
        ),
        ({"generator__gpus": [0, 0], "generator__tensor_parallel": 2}, "must name 2 different"),
        ({"generator__tensor_parallel": 2, "gpu": None}, "the deployment names no gpu"),
        ({"generator__precision": "int8"}, "allowed: auto, fp32"),
        (
            {"generator__target": "trtllm-serve", "generator__precision": "fp8"},
            "target trtllm-serve allows auto",
        ),
        ({"deterministic": True, "verifier__target": "llama.cpp"}, "has no such mode"),
        ({"generator__port": 8000, "verifier__port": 8000}, "have the same port, 8000"),
        ({"generator__container": "a", "generator__executable": "b"}, "remove one"),
        ({"verifier": {**SAME, "tensor_parallel": 2}}, "tensor_parallel of the engine stand in"),
        ({"verifier": {**SAME, "target": "sglang"}}, "verifier.target is the generator's"),
        ({"generator__kv_cache": 1}, "allowed here: "),
        ({"target": "tensorrt", "verifier__target": "openvino"}, "need the same"),
        ({"target": "openvino", "generator": REMOTE, "verifier": COMPILED}, "gpu is for engines"),
        ({"generator": REMOTE, "verifier": {"function": "a.py:f"}}, "target must be openai, not"),
    ],
)
def test_mistakes_are_explained(tmp_path, changes, message):
    with pytest.raises(ConfigError) as caught:
        read(tmp_path, **changes)
    assert message in caught.value.message


STARTED = [name for name, deployment in BUNDLED.items() if deployment.started()]
H100 = load_deployment("qwen3-8b-prm-7b-h100-vllm")


def changed(role="generator", deployment=H100, **fields):
    spec = deployment.started()[role].model_copy(update=fields)
    return deployment.model_copy(update={role: spec})


def words(deployment, role="generator", **more):
    """The options of a command line with their values; True for one that stands alone."""
    argv = command_of(deployment, role, 8000, **more).argv
    values = (*argv[1:], "--")
    return {
        word: True if value.startswith("--") else value
        for word, value in zip(argv, values, strict=True)
        if word.startswith("--")
    }


@pytest.mark.parametrize("target", ENGINES)
@pytest.mark.parametrize("name", STARTED)
def test_every_option_is_one_of_the_engine(name, target):
    for role in BUNDLED[name].started():
        if role == "verifier" and not ENGINES[target].heads:
            continue  # all bundled ones that are engines of their own have a head
        deployment = changed(role, BUNDLED[name], target=target, max_batch_size=2)
        argv = command_of(deployment, role, 1).argv
        assert unknown_options(target, argv) == []
        assert argv[: len(ENGINES[target].program)] == ENGINES[target].program


def test_an_engine_beside_one_that_is_no_server_has_the_gpu_for_itself():
    data = H100.model_dump(mode="json")
    function = {"function": "judge.py:score"}
    for verifier in (function, COMPILED):
        deployment = Deployment.model_validate(data | {"verifier": verifier})
        plan = plan_started(deployment)
        assert list(plan.engines) == ["generator"]
        # 2 x 96 beams of 10,240 tokens would fill more
        assert plan.gpus[0].free - 0.05 * plan.gpu.memory < 16 * 147_456


def test_unknown_options_are_named():
    assert unknown_options("vllm", ["--seed", "1", "--sed=2", "--max_model_len", "-x"]) == ["--sed"]


def test_the_pair_on_one_gpu_has_absolute_caches_and_shares():
    writes, judges = words(H100), words(H100, "verifier")
    plan = plan_started(H100)
    for role, each in (("generator", writes), ("verifier", judges)):
        engine = plan.engines[role]
        cache = engine.tokens * engine.ranks[0].kv_bytes_per_token
        assert int(each["--kv-cache-memory-bytes"]) == cache
        share = (engine.ranks[0].fixed + cache) / plan.gpu.memory
        assert 0 <= float(each["--gpu-memory-utilization"]) - share < 0.001
    assert sum(float(each["--gpu-memory-utilization"]) for each in (writes, judges)) < 0.96
    # a head that scores steps is pooled over whole prompts
    assert judges["--runner"] == "pooling"
    assert judges["--no-enable-chunked-prefill"] is judges["--no-enable-prefix-caching"] is True
    assert writes["--enable-prefix-caching"] is True
    assert "--no-enable-chunked-prefill" not in writes


@pytest.mark.parametrize(
    ("checkpoint", "layers", "heads", "size"),
    [
        ("Qwen3-8B", 36, 8, 128),
        ("Qwen2.5-Math-PRM-7B", 28, 4, 128),
        ("DeepSeek-R1-Distill-Qwen-1.5B", 28, 2, 128),
        ("smollm2-135m-instruct", 30, 3, 64),
    ],
)
def test_a_token_takes_what_vllm_allocates_for_it(checkpoint, layers, heads, size):
    deployment = changed(checkpoint=Path(checkpoint), max_seq_len=512)
    if checkpoint == "Qwen2.5-Math-PRM-7B":  # which is no generator
        deployment = H100
    role = "verifier" if deployment is H100 else "generator"
    # AttentionSpec.unpadded_page_size_bytes of v1/kv_cache_interface.py, in bf16
    page = heads * ENGINES["vllm"].block * (size + size) * 2
    each = plan_started(deployment).engines[role].ranks[0].kv_bytes_per_token
    assert ENGINES["vllm"].block * each == layers * page


@pytest.mark.parametrize(
    ("method", "precision"),
    [
        (None, "fp16"),
        ({"quant_method": "fp8"}, "fp8"),
        ({"quant_algo": "FP8"}, "fp8"),
        ({"quant_method": "gptq", "bits": 8}, "int8"),
        ({"quant_method": "awq", "w_bit": 4}, "int4_awq"),
        ({"config_groups": {"a": {"weights": {"num_bits": 4}}}}, "int4_awq"),
        ({"config_groups": {"a": {"weights": {"num_bits": 8}}}}, "fp8"),
    ],
)
def test_the_precision_of_a_checkpoint_is_read_from_its_config(method, precision):
    config = {"torch_dtype": "float16", "quantization_config": method}
    assert stored_precision(Path("c"), config) == precision


@pytest.mark.parametrize(
    ("fields", "option", "value"),
    [
        ({"precision": "fp8"}, "--quantization", "fp8"),
        ({"precision": "fp16"}, "--dtype", "float16"),
        ({"kv_gib": 3.0}, "--kv-cache-memory-bytes", str(3 * GIB // 147_456 * 147_456)),
        ({"max_batch_size": 7}, "--max-num-seqs", "7"),
        ({"max_num_tokens": 5}, "--max-num-batched-tokens", "96"),
        ({"target": "sglang"}, "--schedule-policy", "fcfs"),
        ({"target": "llama.cpp", "max_batch_size": 2}, "--ctx-size", "20480"),
        ({"target": "llama.cpp", "max_batch_size": 2}, "--gpu-layers", "all"),
        ({"target": "llama.cpp", "max_batch_size": 2}, "--seed", "0"),
        ({"extra_args": ("--lora-modules", "a=b")}, "--lora-modules", "a=b"),
    ],
)
def test_fields_become_options(fields, option, value):
    assert words(changed(**fields))[option] == value


def test_what_is_deterministic():
    apart = H100.model_copy(update={"deterministic": True})
    assert command_of(apart, "generator", 1).env["VLLM_BATCH_INVARIANT"] == "1"
    assert "--attention-backend" not in words(changed(deployment=apart, target="sglang"))
    ada = changed(deployment=apart, target="sglang").model_copy(update={"gpu": "l40s"})
    assert words(ada)["--attention-backend"] == "triton", "FlashInfer would keep no prefixes"


def test_a_key_is_in_the_environment_alone():
    for target in ENGINES:
        spec = changed(target=target, max_batch_size=2)
        command = command_of(spec, "generator", 8000, api_key="secret")
        assert "secret" not in command.argv
        variable = ENGINES[target].key_variable
        assert command.env.get(variable) == ("secret" if variable else None)
    line = str(command_of(H100, "generator", 8000))
    assert shlex.split(line)[:3] == ["VLLM_NO_USAGE_STATS=1", "CUDA_VISIBLE_DEVICES=0", "vllm"]


def test_on_cpus_prompts_are_computed_whole_and_the_cache_is_what_requests_fill():
    deployment = load_deployment("smollm2-vllm-cpu")
    each = words(deployment)
    assert each["--no-enable-chunked-prefill"] is True
    assert int(each["--max-num-batched-tokens"]) >= deployment.generator.max_seq_len
    assert int(each["--kv-cache-memory-bytes"]) == GIB
    assert "--gpu-memory-utilization" not in each
    small = words(changed(deployment=deployment, kv_gib=None, max_batch_size=2))
    # 30 layers x 3 heads x 64 x 2 x 2 bytes, of two sequences
    assert int(small["--kv-cache-memory-bytes"]) == 2 * 2048 * 23_040
    # vLLM's blocks on CPUs have 128 tokens: with 300 tokens it refuses to start
    fields = {"kv_gib": None, "max_batch_size": 1, "max_seq_len": 300}
    alone = words(changed(deployment=deployment, **fields))
    assert int(alone["--kv-cache-memory-bytes"]) == 3 * 128 * 23_040
    assert budgets(deployment)["generator"].kv_tokens == GIB // 23_040 // 128 * 128


def test_the_fraction_of_trtllm_serve_counts_on_the_order_of_starting():
    deployment = load_deployment("qwen3-8b-prm-7b-h100-vllm")
    both = deployment.model_copy(
        update={
            role: spec.model_copy(update={"target": "trtllm-serve", "checkpoint": "Qwen3-8B"})
            for role, spec in deployment.started().items()
        }
    )
    both = Deployment.model_validate(both.model_dump(mode="json") | {"gpu": "h200"})
    plan, shares = plan_started(both), budgets(both)
    first, second = (plan.engines[role] for role in ("generator", "verifier"))
    free = plan.gpu.memory - first.ranks[0].fixed
    for share, others in ((shares["generator"], second.ranks[0].fixed), (shares["verifier"], 0)):
        assert share.free_share == pytest.approx(share.kv_bytes / free, abs=1e-4)
        free -= share.kv_bytes + others


@pytest.mark.parametrize(
    ("deployment", "message"),
    [
        (changed("verifier", target="sglang"), "whose scores sglang 0.5.23 does not give"),
        (H100.model_copy(update={"gpu": "rtx4090"}), "do not fit GPU 0"),
        (changed(kv_gib=1000 * 147_456 / GIB, max_seq_len=1000), "= 1000 takes 0.14 GiB"),
        (changed(kv_gib=0.1), "one sequence of generator.max_seq_len = 10240 takes 1.41 GiB"),
        (changed(kv_gib=60.0), "the pools as stated take 60.00 GiB"),
        (changed(target="llama.cpp"), "the pools as stated take 135.00 GiB"),
        (changed(tensor_parallel=5), "generator.tensor_parallel is 5"),
        (changed(precision="fp8").model_copy(update={"gpu": "a100-80g"}), "fp8 needs compute"),
        (changed(checkpoint=Path("Owner/unknown")), "Or state kv_gib of each model"),
        (changed(checkpoint=H100.verifier.checkpoint), "which cannot generate"),
    ],
)  # fmt: skip
def test_what_cannot_be_is_refused_before_anything_starts(deployment, message):
    with pytest.raises(TtsError) as caught:
        print([command_of(deployment, role, 1) for role in deployment.started()])
    assert message in str(caught.value)


RELEASE = "nvcr.io/nvidia/tensorrt-llm/release:"


@pytest.mark.parametrize(
    ("image", "refused"),
    [
        (f"{RELEASE}1.2.1", True),
        (f"{RELEASE}1.3.0rc21.post1", True),
        (f"{RELEASE}1.3.0rc22", False),
        (f"{RELEASE}1.3.0", False),
        ("mine:latest", False),
        (None, False),
    ],
)
def test_an_image_that_gives_no_exact_labels_is_refused_for_a_verifier_of_labels(image, refused):
    graded = load_deployment("qwen3-8b-graded-l40s-vllm")
    fields = {"target": "trtllm-serve", "container": image}
    command_of(changed(**fields), "generator", 1)  # which only writes
    with pytest.raises(ConfigError) if refused else nullcontext() as caught:
        command_of(changed(deployment=graded, **fields), "generator", 1)
    if refused:
        assert "Use 1.3.0rc22 or later: generator.container" in str(caught.value.hint)


def test_the_command_definition_of_trtllm_serve_reads_every_bundled_deployment():
    record = Path(__file__).parent / "standin" / "trtllm_serve.json"
    command = check_commands.recorded_command(record)
    lines = check_commands.rendered("trtllm-serve")
    assert len(lines) == len(STARTED), "all verifiers that are engines of their own have a head"
    for _, words in lines:
        options = command.make_context("serve", list(words)).params
        assert options["enable_chunked_prefill"] is True
        assert set(options) >= {"tensor_parallel_size", "free_gpu_memory_fraction"}
    for wrong in (["m", "--tp_sise", "1"], ["m", "--port", "x"], ["m", "--backend", "torch"], []):
        with pytest.raises(click.UsageError):
            command.make_context("serve", wrong)


def test_a_model_of_unknown_shape_is_started_with_what_is_stated(tmp_path):
    fields = {"checkpoint": tmp_path, "kv_gib": 2.0}
    (tmp_path / "config.json").write_text(json.dumps({"architectures": ["NewForCausalLM"]}))
    each = words(changed("verifier", changed(**fields), **fields))
    assert int(each["--kv-cache-memory-bytes"]) == 2 * GIB
    assert "--gpu-memory-utilization" not in each


LOGS = [
    (
        "ValueError: Free memory on device cuda:0 (20.1/79.1 GiB) on startup is less than desired "
        "GPU memory utilization (0.674, 53.3 GiB). Decrease GPU memory utilization or reduce",
        "GPU cuda:0 has 20.1 of 79.1 GiB free, and the engine needs 53.3.",
    ),
    ("[Errno 98] error while binding: address already in use", "Another program listens"),
    ("huggingface_hub.errors.GatedRepoError: 401 Client Error", "The model is gated"),
    ("RuntimeError: The NVIDIA driver on your system is too old", "driver is too old"),
    ("CUDA error: no kernel image is available for execution", "no kernels for this GPU"),
    ("torch.OutOfMemoryError: CUDA out of memory. Tried to", "The memory ran out"),
    ("vllm: error: unrecognized arguments: --fitz 1", "The engine does not know --fitz 1."),
    ("error: invalid argument: --fitz", "does not know an option"),
    ("Model architectures ['X'] are not supported for now.", "does not know the model's"),
    ("gguf_init_from_file: failed to open GGUF file 'x' (No such", "There is no such model"),
]  # fmt: skip


@pytest.mark.parametrize(("line", "message"), LOGS)
def test_known_failures_have_one_line_and_a_remedy(line, message):
    cause = cause_of_end(["INFO loading", line, "INFO ending"], 1)
    assert message in cause.sentence
    assert cause.line == line
    assert cause.hint


def test_every_known_failure_fills_its_texts():
    for pattern, sentence, hint in KNOWN_OF_STARTED:
        assert (sentence + hint).count("{") <= pattern.count("(?P<")
    assert "killed" in cause_of_end(["loading"], -9).sentence
