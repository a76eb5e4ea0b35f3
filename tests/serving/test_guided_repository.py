"""Guided decoding in the repository of target tensorrt: both keys and the file, or neither."""

import json

from tests.conftest import write_tokenizer
from tests.serving.facts import unexpected

from tts.base import paths
from tts.serving.repository.check import check_repository
from tts.serving.repository.model_configs import FILE, write_grammar_tokenizer
from tts.serving.repository.render import parse_config, render_repository

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
