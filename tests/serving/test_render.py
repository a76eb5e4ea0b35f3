"""The model repository: rendered whole, checked, kept when nothing changed."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel
from tests.conftest import write_tokenizer
from tests.serving.facts import unexpected

from tts.base import paths
from tts.build.spec import Deployment, ExecutionSpec, ServerSpec, TensorRTEngine
from tts.build.spec.generator import ThinkingSpec
from tts.engines.engine_messages import Open, decode_opening, encode_opening
from tts.engines.generate_request import EngineLimits
from tts.serving.repository.check import check_repository
from tts.serving.repository.digest import deployment_digest
from tts.serving.repository.model_configs import FILE, write_grammar_tokenizer
from tts.serving.repository.render import parse_config, render_repository

Echo = Callable[..., Deployment]


def test_every_config_carries_the_digest_and_parses(echo: Echo):
    deployment = echo()
    folder = render_repository(deployment)
    assert folder == paths.repository_dir("echo")
    for model in ("generator", "prm"):
        config = parse_config(folder / model / "config.pbtxt")
        assert config.name == model
        digest = config.parameters["deployment_digest"].string_value
        assert digest == deployment_digest(deployment)
        assert (folder / model / "1" / "model.py").is_file()
    # an OpenVINO verifier's logit columns are the labels themselves
    assert config.parameters["label_ids"].string_value == "0,1"
    assert sorted(path.name for path in folder.parent.iterdir()) == ["model_repository"]


def test_an_unchanged_repository_is_kept_and_a_changed_one_replaced(echo: Echo, templates: Path):
    folder = render_repository(echo())
    (folder / "prm" / "1" / "__pycache__").mkdir()  # as Triton leaves it
    before = folder.stat().st_ino
    assert render_repository(echo()).stat().st_ino == before
    (templates / "common" / "prm" / "1" / "model.py").write_text("changed")
    assert render_repository(echo()).stat().st_ino != before
    assert (folder / "prm" / "1" / "model.py").read_text() == "changed"


def test_any_path_survives_the_way_into_a_configuration(tmp_path, monkeypatch, tensorrt):
    home = tmp_path / 'a "quoted" back\\slash and ä\nbreak'
    monkeypatch.setenv("TTS_HOME", str(home))
    config = parse_config(render_repository(tensorrt()) / "prm_engine" / "config.pbtxt")
    assert config.parameters["gpt_model_path"].string_value == str(home / "built/pair/verifier")
    opening = Open(home, EngineLimits(1, 2, 3, 4, 5, 6), 1, 0.5, None, home / "tokenizer")
    assert decode_opening(encode_opening(opening)) == opening


ORCHESTRATOR = {  # fields of which a server knows nothing; every other one changes what it serves
    "endpoints",
    "answer_timeout_s",
    "strategies",
    *(f"server.{name}" for name in ServerSpec.model_fields),
    *(f"execution.{name}" for name in ExecutionSpec.model_fields),
    *(f"generator.{name}" for name in ("in_flight_requests", "system_prompt", "step_delimiter")),
    *(f"generator.thinking.{name}" for name in ThinkingSpec.model_fields),
    *(
        f"{role}.chat_template{more}"
        for role in ("generator", "verifier")
        for more in ("", "_kwargs")
    ),
    *("verifier.reads_thinking", "verifier.scores", "verifier.in_flight_requests"),
    *(f"verifier.critique.{name}" for name in ("max_tokens", "temperature", "top_p", "samples")),
    *(f"verifier.critique.thinking.{name}" for name in ThinkingSpec.model_fields),
    *(f"verifier.{name}" for name in ("in_flight_tokens", "system_prompt", "step_tag", "format")),
    *("verifier.prompt", "verifier.template", "verifier.criteria", "verifier.calibration"),
    *("generator.checkpoint", "verifier.checkpoint"),  # by its content, which a manifest holds
}


def fields(section: BaseModel) -> Iterator[str]:
    """Every field of a section and of those in it."""
    for name, value in section:
        inner = fields(value) if isinstance(value, BaseModel) else ()
        yield from (f"{name}.{each}" for each in inner) if inner else (name,)


def changed(section: BaseModel, field: str) -> Any:
    """The same with another value of a field, which need not be a valid one."""
    name, _, rest = field.partition(".")
    value = getattr(section, name)
    other = changed(value, rest) if rest else f"not {value}"
    return section.model_copy(update={name: other})


@pytest.mark.filterwarnings("ignore:Pydantic serializer warnings")
def test_the_digest_is_about_what_is_served(tensorrt: Echo):
    deployment = tensorrt(
        generator={"tensorrt": TensorRTEngine()}, verifier={"tensorrt": TensorRTEngine()}
    )
    digest = deployment_digest(deployment)
    everything = set(fields(deployment)) - {"verifier.prompt_file"}  # read, it is the prompt
    assert everything >= ORCHESTRATOR
    for field in sorted(everything):
        same = deployment_digest(changed(deployment, field)) == digest
        assert same == (field in ORCHESTRATOR), field


def test_the_digest_is_about_the_code_that_serves(echo: Echo, templates: Path):
    digest = deployment_digest(echo())
    (templates / "common" / "prm" / "1" / "model.py").write_text("changed")
    assert deployment_digest(echo()) != digest


KEYS = ("guided_decoding_backend", "xgrammar_tokenizer_info_path", "tokenizer_dir")


def values(folder, model):
    parameters = parse_config(folder / model / "config.pbtxt").parameters
    return tuple(parameters[key].string_value for key in KEYS)


def test_a_backend_matches_grammars_only_where_the_deployment_asks_for_it(tensorrt):
    plain, guided = tensorrt(), tensorrt("guided", generator={"guided_decoding": True})
    folder = render_repository(plain)
    assert values(folder, "generator") == values(folder, "prm_engine") == ("", "", "")
    folder = render_repository(guided)
    file = paths.engine_dir("guided", "generator") / FILE
    assert values(folder, "generator") == ("xgrammar", str(file), "")
    assert values(folder, "prm_engine") == ("", "", "")
    assert check_repository(folder, guided) == []
    assert unexpected(folder) == []
    config = folder / "generator" / "config.pbtxt"
    config.write_text(config.read_text().replace('"xgrammar"', '""'))
    (finding,) = check_repository(folder, guided)
    assert "guided_decoding_backend" in finding.where + finding.what
    assert "ignored without a word" in finding.why


def test_the_file_of_the_tokens_lies_beside_an_engine_that_is_built_here(tensorrt, tmp_path):
    write_tokenizer(tmp_path)
    guided = tensorrt("guided", checkpoint=tmp_path, generator={"guided_decoding": True})
    folder = paths.engine_dir("guided", "generator")
    write_grammar_tokenizer(guided)
    assert not folder.exists()
    folder.mkdir(parents=True)
    write_grammar_tokenizer(guided)
    info = json.loads((folder / FILE).read_text())
    assert set(info) == {"encoded_vocab", "tokenizer_str", "stop_token_ids"}
    assert info["stop_token_ids"] == [4]
    assert info["encoded_vocab"][0] == ""  # special tokens are in no guided output
    assert json.loads(info["tokenizer_str"])["decoder"]["type"] == "ByteLevel"
