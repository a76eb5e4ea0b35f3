"""Checks of guided decoding: the tokens that grammars are matched with."""

import json

from tests.checks.deployments import changed, checkpoint, leave_engines

from tts.build.spec import load_deployment
from tts.checks import after_build, lint, searches
from tts.serving.repository.model_configs import FILE, write_grammar_tokenizer


def test_a_tokenizer_whose_tokens_have_no_known_texts_is_found(tmp_path):
    folder = checkpoint(tmp_path)
    file = folder / "tokenizer.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | {"decoder": {"type": "Fuse"}}))
    deployment = changed("demo", {"generator.checkpoint": str(folder)})
    (finding,) = lint(deployment, [searches.token_texts])
    assert finding.where == "generator.guided_decoding"
    assert "decodes by Fuse" in finding.what
    off = {"generator.checkpoint": str(folder), "generator.guided_decoding": False}
    assert lint(changed("demo", off), [searches.token_texts]) == []
    assert lint(load_deployment("demo"), [searches.token_texts]) == []


def test_the_file_of_the_tokens_is_missed_beside_an_engine(tmp_path, monkeypatch):
    monkeypatch.setenv("TTS_HOME", str(tmp_path))
    deployment = changed("demo-gpu", {"generator.guided_decoding": True})
    assert lint(deployment, [after_build.tokenizer_file]) == []
    leave_engines(deployment)
    (finding,) = lint(deployment, [after_build.tokenizer_file])
    assert finding.what == f"{FILE} is missing"
    write_grammar_tokenizer(deployment)
    assert lint(deployment, [after_build.tokenizer_file]) == []
