"""The form of the answers among a strategy's parameters: read, checked, kept in the run."""

import json

import pytest

from tts.base.errors import ConfigError
from tts.build.spec import load_deployment
from tts.search import BeamSearchConfig
from tts.session.strategy import choose
from tts.strategies.catalog import STRATEGIES
from tts.strategies.parameters import block_problems, configure

SCHEMA = {"type": "object", "properties": {"value": {"type": "integer"}}, "required": ["value"]}


def with_block(deployment, **block):
    return deployment.model_copy(update={"strategies": {"beam-search": block}})


def test_a_form_is_a_parameter_of_every_strategy():
    demo = load_deployment("demo")
    for strategy in STRATEGIES.values():
        config = configure(strategy, demo, {"answer_regex": r"-?\d+"})
        assert config.sampling.answer_regex == r"-?\d+"
        assert config.to_json()["answer_regex"] == r"-?\d+"
        free = configure(strategy, demo, {}).to_json()
        assert free["answer_regex"] is free["answer_schema"] is None


def test_an_answer_with_a_given_form_stands_in_a_box_only():
    demo, strategy = load_deployment("demo"), STRATEGIES["beam-search"]
    in_words = "The final answer is $5$."
    free = strategy.ballot(configure(strategy, demo, {}))
    held = strategy.ballot(configure(strategy, demo, {"answer_regex": r"-?\d+"}))
    assert (free.answer_of(in_words), held.answer_of(in_words)) == ("5", None)
    assert held.answer_of(in_words + r" \boxed{6}") == "6"


def test_a_schema_is_given_as_a_file_as_text_or_as_an_object(tmp_path, monkeypatch):
    demo, strategy = load_deployment("demo"), STRATEGIES["beam-search"]
    (tmp_path / "form.json").write_text(json.dumps(SCHEMA))
    monkeypatch.chdir(tmp_path)
    forms = (SCHEMA, json.dumps(SCHEMA), "form.json", tmp_path / "form.json")
    configs = [configure(strategy, demo, {"answer_schema": form}) for form in forms]
    assert {config.answer_schema for config in configs} == {json.dumps(SCHEMA)}
    again = configure(strategy, demo, configs[0].to_json())  # as a run is continued
    assert again == configs[0]


def test_a_schema_in_a_deployment_lies_beside_its_file(tmp_path):
    bundled = load_deployment("demo")
    (tmp_path / "form.json").write_text(json.dumps(SCHEMA))
    file = tmp_path / "mine.yaml"
    text = f"""
        name: mine
        target: openvino
        generator: {bundled.generator.model_dump_json()}
        verifier: {bundled.verifier.model_dump_json()}
        strategies: {{beam-search: {{answer_schema: form.json}}}}
        """
    file.write_text(text)
    mine = load_deployment(file)
    assert mine.folder == tmp_path
    assert list(block_problems(mine)) == []
    config = configure(STRATEGIES["beam-search"], mine, {})
    assert config.answer_schema == json.dumps(SCHEMA)
    # the form that is given replaces the deployment's, also one of the other kind
    config = configure(STRATEGIES["beam-search"], mine, {"answer_regex": "a"})
    assert (config.answer_regex, config.answer_schema) == ("a", None)


@pytest.mark.parametrize(
    ("given", "complaint"),
    [
        ({"answer_regex": "a("}, "wrong at character 2"),
        ({"answer_regex": ".*"}, "cannot stand in"),
        ({"answer_schema": "nowhere.json"}, "'nowhere.json', cannot be read: there is no"),
        ({"answer_schema": {"type": "x"}}, "wrong at $.type"),
        ({"answer_regex": "a", "answer_schema": SCHEMA}, "both given"),
        ({"answer_regex": 5}, "answer_regex = 5: must be a text"),
    ],
)
def test_a_wrong_form_is_refused_before_any_work(given, complaint):
    demo = load_deployment("demo")
    with pytest.raises(ConfigError) as caught:
        choose("beam-search", demo, given)
    assert complaint in caught.value.message


def test_a_form_in_a_config_object_is_checked_too():
    with pytest.raises(ConfigError, match="wrong at character 2"):
        choose(BeamSearchConfig(answer_regex="a("), load_deployment("demo"), {})


def test_a_generator_without_guided_decoding_is_refused_by_the_field(tiny_deployment):
    with pytest.raises(ConfigError, match="served without guided decoding") as caught:
        choose("beam-search", tiny_deployment, {"answer_regex": "a"})
    assert "generator.guided_decoding: true" in caught.value.hint
    ((path, problem),) = block_problems(with_block(tiny_deployment, answer_regex="a"))
    assert path == "strategies.beam-search"
    assert "served without guided decoding" in problem
