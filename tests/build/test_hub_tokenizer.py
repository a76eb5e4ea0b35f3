"""Tokenizers by their model's name on the hub: from a cache on disk, or what to do."""

import shutil
from pathlib import Path

import pytest
import yaml
from huggingface_hub import constants

from tts.base.errors import CheckpointError
from tts.build.resolve import open_deployment
from tts.build.spec import load_deployment
from tts.build.spec.section import names_repository


@pytest.fixture
def cache(tmp_path, monkeypatch):
    """An empty cache of the hub, which nothing outside answers for."""
    folder = tmp_path / "hub"
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(folder))
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    return folder


def written(tmp_path, tokenizer):
    common = {"url": "http://127.0.0.1:1", "tokenizer": tokenizer, "max_seq_len": 320}
    data = {
        "name": "far",
        "target": "openai",
        "generator": {**common, "in_flight_requests": 8},
        "verifier": {**common, "in_flight_tokens": 512, "format": "rlhflow", "labels": ["+", "-"]},
    }
    file = tmp_path / "far.yaml"
    file.write_text(yaml.safe_dump(data))
    return file


@pytest.mark.parametrize("missing", [None, "tokenizer.json"])
def test_the_cache_has_it(tmp_path, cache, tokenizer_folder, capsys, missing):
    model, commit = cache / "models--Owner--Name", "0" * 40
    shutil.copytree(tokenizer_folder, model / "snapshots" / commit)
    (model / "refs").mkdir()
    (model / "refs" / "main").write_text(commit)
    if missing:
        (model / "snapshots" / commit / missing).unlink()
        with pytest.raises(CheckpointError, match="Name has no tokenizer"):
            open_deployment(written(tmp_path, "Owner/Name"))
        return
    deployment = open_deployment(written(tmp_path, "Owner/Name"))
    assert deployment.generator.tokenizer_folder == model / "snapshots" / commit
    assert capsys.readouterr().err == ""


def test_without_a_network_it_says_what_to_do(tmp_path, cache):
    file = written(tmp_path, "Owner/Name")
    assert load_deployment(file).generator.tokenizer == Path("Owner/Name")
    with pytest.raises(CheckpointError, match="There is no folder Owner/Name, the cache") as caught:
        open_deployment(file)
    assert "hf download Owner/Name" in caught.value.hint


def test_a_folder_beside_the_file_is_what_is_meant(tmp_path, cache, tokenizer_folder):
    shutil.copytree(tokenizer_folder, tmp_path / "Owner" / "Name")
    deployment = open_deployment(written(tmp_path, "Owner/Name"))
    assert deployment.generator.tokenizer_folder == tmp_path / "Owner" / "Name"


@pytest.mark.parametrize("path", ["../a/b", "writer", "/a/b", "a/b/c", "~/b", "./a"])
def test_other_paths_name_no_model(path):
    assert not names_repository(path)
