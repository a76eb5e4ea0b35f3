"""Sections of a deployment file that name an engine which runs already, by its URL."""

from pathlib import Path

import pytest
import yaml

from tts.base import paths
from tts.base.errors import ConfigError
from tts.build.builder import build_engines, preview_build, require_current
from tts.build.spec import (
    Deployment,
    RemoteGenerator,
    RemoteVerifier,
    VerifierSpec,
    load_deployment,
)

GENERATOR = {
    "url": "http://localhost:8000",
    "tokenizer": "qwen",
    "max_seq_len": 4096,
    "in_flight_requests": 64,
}
VERIFIER = {
    "url": ["https://one.example/v1/", "http://[::1]:8001"],
    "model": "judge",
    "api_key_env": "JUDGE_KEY",
    "tokenizer": "/models/judge",
    "max_seq_len": 4096,
    "in_flight_tokens": 8192,
    "format": "prompted",
    "prompt": "{question} {steps} {step}",
}


@pytest.fixture
def load(tmp_path):
    """Load a file with these sections; None: that of demo.yaml."""

    def load(generator=GENERATOR, verifier=VERIFIER, **fields):
        demo = yaml.safe_load((paths.deployments_dir() / "demo.yaml").read_text())
        data = {"name": "mine", "target": "openai", **fields}
        data["generator"] = demo["generator"] if generator is None else generator
        data["verifier"] = demo["verifier"] if verifier is None else verifier
        file = tmp_path / "mine.yaml"
        file.write_text(yaml.safe_dump(data))
        return load_deployment(file)

    return load


def test_both_engines_may_run_already(load, tmp_path):
    deployment = load()
    generator, verifier = deployment.generator, deployment.verifier
    assert isinstance(generator, RemoteGenerator)
    assert isinstance(verifier, RemoteVerifier)
    assert generator.url == ("http://localhost:8000",)
    assert generator.model is None
    assert generator.tokenizer_folder == tmp_path / "qwen"
    assert verifier.url == ("https://one.example/v1", "http://[::1]:8001")
    assert verifier.tokenizer_folder == Path("/models/judge")
    assert list(verifier.labels) == ["Yes", "No"]  # of the format, as of a compiled one
    assert deployment.engines() == {}
    assert deployment.remotes() == {"generator": generator, "verifier": verifier}
    for again in (
        Deployment.model_validate(deployment.model_dump()),
        Deployment.model_validate_json(deployment.model_dump_json()),
    ):
        assert again.roles() == deployment.roles()


def test_either_engine_may_be_compiled(load):
    beside = load(verifier=None, target="openvino")
    assert isinstance(beside.verifier, VerifierSpec)
    assert list(beside.engines()) == ["verifier"]
    assert list(beside.remotes()) == ["generator"]
    assert list(load(generator=None, target="openvino").engines()) == ["generator"]


def test_what_needs_both_compiled_says_so(load):
    with pytest.raises(ConfigError, match="the generator runs at http://localhost:8000, and this"):
        load(verifier=None, target="openvino").compiled_pair()
    assert load_deployment("demo").compiled_pair()[0].max_batch_size == 64


def test_there_is_nothing_to_build(load):
    deployment, said = load(), []
    assert build_engines(deployment, say=said.append) == []
    assert said == [
        "generator: nothing to build, it runs at http://localhost:8000",
        "verifier: nothing to build, it runs at https://one.example/v1, http://[::1]:8001",
    ]
    assert preview_build(deployment) == [f"# {line}" for line in said]
    assert require_current(deployment) == {}


def generator(**changes):
    return {"generator": {k: v for k, v in (GENERATOR | changes).items() if v is not ...}}


def verifier(**changes):
    return {"verifier": {k: v for k, v in (VERIFIER | changes).items() if v is not ...}}


SECRET = "sk-123-not-to-be-shown"
TENSORRT = {"target": "tensorrt", "tensorrt": {"gpu": "h100"}}
WRONG = [
    (generator(url="localhost:8000"), ["generator.url.0 = 'localhost:8000'", "http://localhost"]),
    (generator(url="http://"), ["must be a URL"]),
    (generator(url="http://a b"), ["must be a URL"]),
    (generator(url="http://[:1"), ["must be a URL"]),
    (generator(url=5), ["generator.url = 5"]),
    (generator(url=[]), ["generator.url"]),
    (generator(url="http://me:pass@host"), ["neither a user", "api_key_env"]),
    (generator(url=["http://a", "http://a/"]), ["names a server twice"]),
    (generator(tokenizer=...), ["generator.tokenizer: this field is required"]),
    (generator(max_seq_len=...), ["generator.max_seq_len: this field is required"]),
    (generator(modle="m"), ["generator.modle = 'm': unknown field"]),
    (generator(precision="bf16"), ["generator: precision: whoever started", "remove it"]),
    (generator(kv_cache={}, max_batch_size=3), ["kv_cache, max_batch_size", "remove them"]),
    (generator(api_key=SECRET), ["generator: a key does not belong into the file"]),
    (generator(api_key_env=SECRET), ["generator: a key does not belong into the file"]),
    (generator(api_key_env=5), ["generator.api_key_env = 5: must be a text"]),
    (verifier(in_flight_tokens=10), ["the budget must let one full request through"]),
    ({"target": "openvino"}, ["target must be openai, not openvino"]),
    ({"verifier": None}, ["verifier has no url", "target openai"]),
    ({"endpoints": ["one:8001"]}, ["name all in url"]),
    ({"tensorrt": {"gpu": "h100"}}, ["the block tensorrt is for target tensorrt"]),
    ({"verifier": None, **TENSORRT}, ["for target openvino only"]),
]


@pytest.mark.parametrize(("fields", "told"), WRONG)
def test_mistakes_are_explained(load, fields, told):
    with pytest.raises(ConfigError) as caught:
        load(**fields)
    for part in told:
        assert part in caught.value.message
    assert SECRET not in str(caught.value)


@pytest.mark.parametrize(
    ("name", "consecutive"),
    [("demo", False), ("demo-beside-openai", True), ("smollm2-vllm-cpu", True)],
)
def test_seeds_of_siblings_count_up_where_the_generator_is_reached_by_http(name, consecutive):
    assert load_deployment(name).consecutive_seeds is consecutive
