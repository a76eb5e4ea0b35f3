"""The files of a tokenizer that are damaged, or hold what they must not."""

import os
import shutil
from pathlib import Path

import pytest

from tts.base.errors import CheckpointError
from tts.build.tokenizer import Tokenizer

USER = [{"role": "user", "content": "1 + 1?"}]


@pytest.fixture
def folder(tokenizer_folder, tmp_path):
    """A copy of a good tokenizer, to be damaged."""
    return Path(shutil.copytree(tokenizer_folder, tmp_path / "tokenizer"))


@pytest.mark.parametrize("text", ["{", "[]", "[" * 100_000, "\udcff", '{"a": "\\ud800"}'])
def test_a_damaged_configuration_is_named(folder, text):
    (folder / "tokenizer_config.json").write_bytes(text.encode("utf-8", "surrogateescape"))
    with pytest.raises(CheckpointError, match=r"tokenizer_config\.json"):
        Tokenizer(folder)


def test_a_pipe_is_no_configuration(folder):
    (folder / "tokenizer_config.json").unlink()
    os.mkfifo(folder / "tokenizer_config.json")
    with pytest.raises(CheckpointError, match="not a regular file"):
        Tokenizer(folder)


@pytest.mark.parametrize("value", ['"2"', '[1, "2"]', "[true]", "-1", "1.5", str(2**40), "{}"])
def test_end_tokens_that_are_no_ids_are_named(folder, value):
    (folder / "generation_config.json").write_text(f'{{"eos_token_id": {value}}}')
    with pytest.raises(CheckpointError, match=r"generation_config\.json: eos_token_id is"):
        _ = Tokenizer(folder).eos_ids


def test_without_configurations_the_end_token_is_missing(folder):
    (folder / "generation_config.json").write_text('{"eos_token_id": []}')
    assert Tokenizer(folder).eos_ids == (4,)  # of tokenizer_config.json
    (folder / "tokenizer_config.json").unlink()
    with pytest.raises(CheckpointError, match="names no end-of-sequence token"):
        _ = Tokenizer(folder).eos_ids


def test_a_chat_template_that_is_no_text_is_named(folder):
    (folder / "chat_template.jinja").write_bytes(b"\xff")
    with pytest.raises(CheckpointError, match=r"chat_template\.jinja cannot be read"):
        Tokenizer(folder).chat(USER, generation_prompt=True)


@pytest.mark.parametrize(
    "template", ["{{ +'a' }}", "{% for x in true %}{% endfor %}", "{{ 1 / 0 }}"]
)
def test_a_chat_template_that_fails_as_a_program_is_named(folder, template):
    (folder / "chat_template.jinja").write_text(template)
    with pytest.raises(CheckpointError, match=r"chat template of .* failed"):
        Tokenizer(folder).chat(USER, generation_prompt=True)
