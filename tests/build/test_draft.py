"""A new deployment file: whatever it is made from, it loads, and says of each field what it is."""

import itertools
import re
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from tests.amounts import amount

from tts.base import paths
from tts.base.errors import ConfigError
from tts.base.yaml_text import parse_yaml
from tts.build.draft import (
    SYSTEM_PROMPT,
    Choices,
    CompiledModel,
    FunctionModel,
    Machine,
    ServedModel,
    as_text,
    drafted,
)
from tts.build.openvino.memory import plan_host_memory
from tts.build.spec import FORMATS, Deployment, load_deployment
from tts.build.tensorrt.gpus import GIB, GPUS, kind_of
from tts.build.tensorrt.memory_plan import plan_memory

CHECKPOINTS = paths.deployments_dir().parent / "checkpoints"
PROMPT = (paths.deployments_dir() / "prompts" / "right-step.txt").read_text().strip()
PUBLISHED = {
    "Llama-3.2-1B-Instruct": 131072,
    "Llama-3.1-8B-Instruct": 131072,
    "Llama-3.3-70B-Instruct": 131072,
    "Llama3.1-8B-PRM-Deepseek-Data": 131072,
}
ROOMY = Machine(cores=8, memory=64 * GIB, gpu="h100", gpus=8)


def bundled(role):
    folder = CHECKPOINTS / f"demo-{role}"
    return CompiledModel(str(folder), folder, 512)


def published(name):
    folder = Path("/nowhere") / name
    return CompiledModel(str(folder), folder, PUBLISHED[name], f"owner/{name}")


def served(name="demo-generator", context=None):
    return ServedModel("http://localhost:8000", str(CHECKPOINTS / name), context)


def pair(**changes):
    return replace(
        Choices("mine", "openvino", bundled("generator"), bundled("verifier")), **changes
    )


def loaded(text, folder):
    file = folder / "mine.yaml"
    file.write_text(text, encoding="utf-8")
    return load_deployment(file)


machines = st.builds(
    Machine,
    cores=st.integers(1, 256),
    memory=st.none() | st.integers(GIB, 512 * GIB),
    bf16=st.booleans(),
    triton=st.booleans(),
    gpu=st.sampled_from(list(GPUS)),
    gpus=st.integers(0, 8),
    gpu_name=st.just(""),
)
texts = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=60)
compiled = st.builds(
    CompiledModel,
    checkpoint=texts.filter(lambda text: "\0" not in text and not text.startswith("~")),
    folder=st.sampled_from([CHECKPOINTS / "demo-generator", CHECKPOINTS / "demo-verifier"]),
    positions=st.none() | st.integers(64, 200_000),
    repository=st.sampled_from(["", "owner/name"]),
    head=st.just("labels"),
)
remote = st.builds(
    ServedModel,
    url=st.sampled_from(["http://localhost:8000", "https://far.example/base"]),
    tokenizer=texts.filter(lambda text: "\0" not in text and not text.startswith("~")),
    positions=st.none() | st.integers(1, 200_000),
)

function = st.builds(FunctionModel, name=st.sampled_from(["my_prm.py:score", "../my prm.py:A.b"]))


@st.composite
def choices(draw):
    target = draw(st.sampled_from(["openvino", "tensorrt", "openai"]))
    if target == "openai":
        both = (draw(remote), draw(remote | function))
    elif target == "openvino":
        kinds = draw(
            st.sampled_from(
                [(compiled, compiled), (remote, compiled), (compiled, remote), (compiled, function)]
            )
        )
        both = tuple(draw(kind) for kind in kinds)
    else:
        both = (draw(compiled), draw(compiled))
    formats = [
        name
        for name, facts in FORMATS.items()
        if facts.judges[0] == "labels" and (target == "openai" or not facts.not_compiled)
    ]
    return Choices(
        draw(st.from_regex(r"[a-z0-9][a-z0-9._-]{0,63}", fullmatch=True)),
        target,
        *both,
        format=draw(st.sampled_from(formats)),
        why_format=draw(texts),
        prompt=PROMPT,
        system_prompt=draw(st.just("") | texts),
    )


def written(choices, machine):
    """The deployment and its file; only of models that fit the machine."""
    try:
        new = drafted(choices, machine)
    except ConfigError:
        assume(False)
    return new, as_text(choices, machine, new)


def on(target, generator="Llama-3.2-1B-Instruct"):
    verifier = published("Llama3.1-8B-PRM-Deepseek-Data")
    return pair(target=target, generator=published(generator), verifier=verifier)


def file_of(choices, machine=ROOMY):
    return as_text(choices, machine, drafted(choices, machine))


def words_of(text):
    return " ".join(text.replace("#", "").split())


def placed(deployment):
    """The values, with each engine's block tensorrt, which a file may leave out."""
    engines = deployment.engines().items()
    update = {}
    for role, spec in engines:
        block = spec.placement.model_copy(update={"gpus": spec.placement.replicas})
        update[role] = spec.model_copy(update={"tensorrt": block})
    return deployment.model_copy(update=update).model_dump()


@settings(max_examples=amount(12, 60))
@given(choices(), machines)
def test_every_file_holds_what_was_drafted(choices, machine):
    new, text = written(choices, machine)
    values = parse_yaml(text)
    for role, model in (("generator", choices.generator), ("verifier", choices.verifier)):
        if isinstance(model, CompiledModel):
            assert values[role]["checkpoint"] == model.checkpoint
            values[role]["checkpoint"] = model.folder
    assert placed(Deployment.model_validate(values)) == placed(new)
    assert (new.name, new.target) == (choices.name, choices.target)
    assert new.generator.system_prompt == (choices.system_prompt or None)
    if not isinstance(choices.verifier, FunctionModel):
        assert new.verifier.format == choices.format


@settings(max_examples=amount(12, 60))
@given(choices(), machines)
def test_every_field_stands_below_a_comment(choices, machine):
    _, text = written(choices, machine)
    lines = text.replace(_indented(PROMPT), "").splitlines()
    for above, line in itertools.pairwise(lines):
        if re.match(r"\s*\w+:", line):
            assert above.lstrip().startswith("#"), line


def _indented(prompt):
    return "\n".join(f"    {line}".rstrip() for line in prompt.split("\n"))


@settings(max_examples=amount(12, 60))
@given(choices(), machines)
def test_fields_that_are_only_suggested_can_be_set(choices, machine):
    _, text = written(choices, machine)
    if not choices.system_prompt:
        assert f"# system_prompt: '{SYSTEM_PROMPT}'" in text
        assert "system_prompt" not in parse_yaml(text)["generator"]
    suggested = r"(?m)^( +)# ((?:system_prompt|model|api_key_env): )"
    values = parse_yaml(re.sub(suggested, r"\1\2", text))
    assert "system_prompt" in values["generator"]
    Deployment.model_validate(values)


def test_the_bundled_pair_on_a_cpu_is_exact(tmp_path):
    deployment = loaded(file_of(pair()), tmp_path)
    assert {spec.precision for spec in deployment.engines().values()} == {"fp32"}
    assert deployment.generator.max_seq_len == deployment.verifier.max_seq_len == 512


@pytest.mark.parametrize(
    ("cores", "memory", "bf16", "precision", "batch", "most"),
    [
        (8, 256, False, "fp32", 16, 64),
        (8, 32, True, "bf16", 16, 64),
        (8, 32, False, "int8", 16, 64),
        (32, 40, False, "int8", 64, 64),
        (32, 32, False, "int8", 16, 16),
        (8, 10, False, "int8", 1, 1),
    ],
)
def test_a_cpu_pair_has_the_sizes_that_its_machine_has_memory_for(
    cores, memory, bf16, precision, batch, most
):
    machine = Machine(cores=cores, memory=memory * GIB, bf16=bf16)
    deployment = drafted(on("openvino"), machine)
    for spec in deployment.engines().values():
        assert spec.precision == precision
        assert spec.kv_cache.tokens == max(4096, 1024 * batch)
    assert deployment.verifier.max_batch_size == batch
    generator = deployment.generator
    assert (generator.max_batch_size, generator.in_flight_requests) == (most, most)
    assert deployment.verifier.in_flight_tokens == min(8192, 4096 * batch)
    assert plan_host_memory(deployment).needed <= memory * GIB


@pytest.mark.parametrize(
    ("generator", "gpu", "gpus", "precision", "ranks"),
    [
        ("Llama-3.2-1B-Instruct", "h100", 1, "bf16", 1),
        ("Llama-3.2-1B-Instruct", "h100", 2, "bf16", 1),
        ("Llama-3.3-70B-Instruct", "h100", 4, "bf16", 2),
        ("Llama-3.3-70B-Instruct", "h100", 2, "fp8", 2),
        ("Llama-3.3-70B-Instruct", "h100", 0, "bf16", 2),
    ],
)
def test_a_gpu_pair_is_planned(generator, gpu, gpus, precision, ranks):
    deployment = drafted(on("tensorrt", generator), Machine(8, gpu=gpu, gpus=gpus))
    spec = deployment.generator
    assert (spec.precision, spec.placement.tensor_parallel) == (precision, ranks)
    planned = plan_memory(deployment).engines
    for role, engine in deployment.engines().items():
        assert engine.kv_cache.tokens == planned[role].tokens


@pytest.mark.parametrize(
    ("target", "machine", "said"),
    [
        ("openvino", Machine(2, memory=8 * GIB), r"need \d.* GiB .* has 8.00 GiB"),
        ("tensorrt", Machine(8, gpu="rtx4090", gpus=1), "do not fit GPU 0"),
    ],
)
def test_a_pair_that_no_precision_fits_is_refused_with_the_figures(target, machine, said):
    with pytest.raises(ConfigError, match=said):
        drafted(on(target, "Llama-3.3-70B-Instruct"), machine)


def test_what_is_not_known_is_said():
    unknown = CompiledModel("checkpoints/x", Path("/nowhere/x"), None, "owner/x")
    words = words_of(file_of(pair(generator=unknown)))
    assert "hf download owner/x --local-dir checkpoints/x" in words
    assert words.count("A guess, as no checkpoint is here yet") == 4
    served_pair = pair(target="openai", generator=served(), verifier=served())
    assert "The server's context is not known" in words_of(file_of(served_pair))


def test_without_a_triton_server_the_engines_are_embedded(tmp_path):
    text = file_of(pair(), replace(ROOMY, triton=False))
    assert loaded(text, tmp_path).server.kind == "embedded"
    assert "server:" not in file_of(pair())


@pytest.mark.parametrize(
    ("name", "mebibytes", "kind"),
    [
        ("NVIDIA A100-SXM4-40GB", 40960, "a100-40g"),
        ("NVIDIA A100-PCIE-40GB", 40960, "a100-40g"),
        ("NVIDIA A100 80GB PCIe", 81920, "a100-80g"),
        ("NVIDIA L40S", 46068, "l40s"),
        ("NVIDIA H100 80GB HBM3", 81559, "h100"),
        ("NVIDIA H100 NVL", 95830, "h100"),
        ("NVIDIA H200", 143771, "h200"),
        ("NVIDIA B200", 183359, "b200"),
        ("NVIDIA GeForce RTX 4090", 24564, "rtx4090"),
        ("NVIDIA GeForce RTX 4090 Laptop GPU", 16376, None),
        ("NVIDIA GH200 480GB", 97871, None),
        ("Tesla T4", 15360, None),
    ],
)
def test_a_gpu_is_known_by_its_name_and_memory(name, mebibytes, kind):
    assert kind_of(name, mebibytes * 2**20) == kind
