"""Deployments of engines that are started: how a file is read, and what is refused."""

import copy

import pytest
import yaml

from tts.base.errors import ConfigError
from tts.build.spec import (
    Deployment,
    RemoteGenerator,
    StartedGenerator,
    StartedVerifier,
    VerifierSpec,
    load_deployment,
)

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
