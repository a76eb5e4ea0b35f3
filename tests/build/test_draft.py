"""A new deployment file: whatever it is made from, it loads, and says of each field what it is."""

import itertools
import re
from dataclasses import replace
from pathlib import Path

import pytest
import yaml
from hypothesis import assume, given
from hypothesis import strategies as st

from tts.build import paths
from tts.build.draft import (
    Answers,
    CompiledModel,
    FunctionModel,
    Machine,
    ServedModel,
    as_text,
    draft,
)
from tts.build.draft.values import SYSTEM_PROMPT, deployment_of
from tts.build.errors import ConfigError
from tts.build.machine_limits import MemoryLimit
from tts.build.openvino.memory import plan_host_memory
from tts.build.spec import FORMATS, Deployment, load_deployment
from tts.build.spec.field_docs import field_doc
from tts.build.tensorrt.gpus import GIB, GPUS, kind_of
from tts.build.tensorrt.memory_plan import plan_memory
from tts.build.yaml_text import parse_yaml

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
        Answers("mine", "openvino", bundled("generator"), bundled("verifier")), **changes
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
    context=st.none() | st.integers(1, 200_000),
)

function = st.builds(FunctionModel, name=st.sampled_from(["my_prm.py:score", "../my prm.py:A.b"]))


@st.composite
def answers(draw):
    target = draw(st.sampled_from(["openvino", "tensorrt", "llmapi", "openai"]))
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
    return Answers(
        draw(st.from_regex(r"[a-z0-9][a-z0-9._-]{0,63}", fullmatch=True)),
        target,
        *both,
        format=draw(st.sampled_from(formats)),
        why_format=draw(texts),
        prompt=PROMPT,
        system_prompt=draw(st.just("") | texts),
    )


def drafted(answers, machine):
    """The draft; only of models that fit the machine."""
    try:
        return draft(answers, machine)
    except ConfigError:
        assume(False)


@given(answers(), machines)
def test_every_file_holds_what_was_drafted_and_is_a_deployment(answers, machine):
    new = drafted(answers, machine)
    read = parse_yaml(as_text(new))
    assert read == new.values
    deployment = Deployment.model_validate(read)
    assert (deployment.name, deployment.target) == (answers.name, answers.target)
    if not isinstance(answers.verifier, FunctionModel):
        assert deployment.verifier.format == answers.format
    assert deployment.generator.system_prompt == (answers.system_prompt or None)


@given(answers(), machines)
def test_every_field_stands_below_a_comment(answers, machine):
    new = drafted(answers, machine)
    text = as_text(new).replace(new.values["verifier"].get("prompt", "\0"), "")
    lines = text.replace(_indented(PROMPT), "").splitlines()
    for above, line in itertools.pairwise(lines):
        if re.match(r"\s*\w+:", line):
            assert above.lstrip().startswith("#"), line


def _indented(prompt):
    return "\n".join(f"    {line}".rstrip() for line in prompt.split("\n"))


@given(answers(), machines)
def test_fields_that_are_only_suggested_can_be_set(answers, machine):
    new = drafted(answers, machine)
    names = "|".join(name for _, name in new.suggested) or "none"
    text = re.sub(rf"(?m)^( +)# ((?:{names}): )", r"\1\2", as_text(new))
    read = parse_yaml(text)
    for (section, name), value in new.suggested.items():
        assert read[section][name] == value
    Deployment.model_validate(read)


def test_the_bundled_pair_on_a_cpu_is_exact(tmp_path):
    deployment = loaded(as_text(draft(pair(), ROOMY)), tmp_path)
    assert {spec.precision for spec in deployment.engines().values()} == {"fp32"}
    assert deployment.generator.max_seq_len == deployment.verifier.max_seq_len == 512


@pytest.mark.parametrize(
    ("memory", "bf16", "precision"),
    [(256, False, "fp32"), (32, True, "bf16"), (32, False, "int8")],
)
def test_a_cpu_pair_has_the_precision_that_its_machine_has_memory_for(memory, bf16, precision):
    larger = pair(
        generator=published("Llama-3.2-1B-Instruct"),
        verifier=published("Llama3.1-8B-PRM-Deepseek-Data"),
    )
    machine = Machine(cores=8, memory=memory * GIB, bf16=bf16)
    deployment = deployment_of(draft(larger, machine), larger)
    assert {spec.precision for spec in deployment.engines().values()} == {precision}
    assert plan_host_memory(deployment).needed < MemoryLimit(memory * GIB, "this machine").size


def test_a_pair_that_no_precision_fits_is_refused_with_the_figures():
    huge = pair(
        generator=published("Llama-3.3-70B-Instruct"),
        verifier=published("Llama3.1-8B-PRM-Deepseek-Data"),
    )
    with pytest.raises(ConfigError, match=r"need \d.* GiB .* has 8.00 GiB"):
        draft(huge, Machine(cores=2, memory=8 * GIB))


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
    asked = pair(
        target="tensorrt",
        generator=published(generator),
        verifier=published("Llama3.1-8B-PRM-Deepseek-Data"),
    )
    deployment = deployment_of(draft(asked, Machine(8, gpu=gpu, gpus=gpus)), asked)
    spec = deployment.generator
    assert (spec.precision, spec.placement.tensor_parallel) == (precision, ranks)
    planned = plan_memory(deployment).engines
    for role, engine in deployment.engines().items():
        assert engine.kv_cache.tokens == planned[role].tokens


def test_a_gpu_pair_that_does_not_fit_is_refused_by_the_plan():
    asked = pair(
        target="tensorrt",
        generator=published("Llama-3.3-70B-Instruct"),
        verifier=published("Llama3.1-8B-PRM-Deepseek-Data"),
    )
    with pytest.raises(ConfigError, match=r"do not fit GPU 0"):
        draft(asked, Machine(8, gpu="rtx4090", gpus=1))


def test_what_is_not_known_is_said():
    unknown = CompiledModel("checkpoints/x", Path("/nowhere/x"), None, "owner/x")
    text = as_text(draft(pair(generator=unknown), ROOMY))
    words = " ".join(text.replace("#", "").split())
    assert "hf download owner/x --local-dir checkpoints/x" in words
    assert words.count("A guess, as no checkpoint is here yet") == 4
    text = as_text(draft(pair(target="openai", generator=served(), verifier=served()), ROOMY))
    assert "The server's context is not known" in " ".join(text.replace("#", "").split())


def test_descriptions_are_those_of_the_source():
    text = " ".join(as_text(draft(pair(), ROOMY)).replace("#", "").split())
    for model in type(load_deployment("demo").generator), type(load_deployment("demo").verifier):
        for name in ("checkpoint", "precision", "max_batch_size", "max_seq_len"):
            assert field_doc(name, model) in text


def test_without_a_triton_server_the_engines_are_embedded(tmp_path):
    text = as_text(draft(pair(), replace(ROOMY, triton=False)))
    assert loaded(text, tmp_path).server.kind == "embedded"
    assert "server:" not in as_text(draft(pair(), ROOMY))


def test_the_suggested_system_prompt_is_a_comment():
    text = as_text(draft(pair(), ROOMY))
    assert f"# system_prompt: '{SYSTEM_PROMPT}'" in text
    assert "system_prompt" not in yaml.safe_load(text)["generator"]


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
