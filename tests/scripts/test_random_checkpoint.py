"""Checkpoints with random weights, and the program that makes them."""

import sys
from pathlib import Path

import pytest
from scripts import random_checkpoint
from scripts.random_checkpoint import make_random_checkpoint, size_of

from tts.base.errors import TtsError
from tts.base.paths import deployments_dir
from tts.build.checkpoint import open_checkpoint
from tts.build.model_config import ARCHITECTURES, known_names
from tts.build.tokenizer import Tokenizer

TOKENIZER = deployments_dir().parent / "checkpoints" / "demo-generator"


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_it_is_a_whole_checkpoint_of_the_size_asked_for_and_others_know_it(tmp_path, architecture):
    transformers = pytest.importorskip("transformers")

    folder = tmp_path / "model"
    make_random_checkpoint(
        folder, tokenizer=TOKENIZER, parameters=3_000_000, architecture=architecture
    )
    checkpoint = open_checkpoint(folder)
    assert checkpoint.config.architecture == architecture
    assert checkpoint.num_parameters == pytest.approx(3e6, rel=0.1)
    assert Tokenizer(folder).eos_ids
    config = transformers.AutoConfig.from_pretrained(folder)
    assert config.architectures == [architecture]
    assert transformers.AutoConfig.for_model(config.model_type).model_type == config.model_type


def test_the_same_seed_gives_the_same_weights_in_shards(tmp_path, monkeypatch):
    monkeypatch.setattr(random_checkpoint, "SHARD_BYTES", 500_000)
    for name, seed in (("a", 1), ("b", 1), ("c", 2)):
        make_random_checkpoint(
            tmp_path / name, tokenizer=TOKENIZER, parameters=1_000_000, seed=seed
        )
        assert open_checkpoint(tmp_path / name).num_parameters > 900_000
        assert len(shards := sorted((tmp_path / name).glob("model-*"))) >= 4
        assert all(shard.stat().st_size < 600_000 for shard in shards)
    a, b, c = (next((tmp_path / name).glob("model-00002-*")).read_bytes() for name in "abc")
    assert a == b != c


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"like": "Lama"}, "no published shape of 'Lama'.*" + ".*".join(known_names())),
        ({"parameters": 10**6, "architecture": "T5"}, "no architecture 'T5'"),
        ({}, "Give either"),
        ({"parameters": 10**6, "like": "Lama"}, "Give either"),
        ({"parameters": 10**6, "tokenizer": Path("nowhere")}, "nowhere"),
        ({"parameters": 10**6, "out": Path(__file__) / "x"}, "cannot be made"),
        ({"parameters": 10**6, "out": Path(__file__).parent}, "cannot be made"),
    ],
)
def test_mistakes_are_sentences(tmp_path, changes, said):
    arguments = {"out": tmp_path / "x", "tokenizer": TOKENIZER, **changes}
    with pytest.raises(TtsError, match=said):
        make_random_checkpoint(arguments.pop("out"), **arguments)
    assert not (tmp_path / "x").exists()


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("25M", 25_000_000),
        ("1.2b", 1_200_000_000),
        *((bad, None) for bad in ("25Q", "25", "-1M", "0M", "M")),
    ],
)
def test_sizes_have_units(text, size):
    if size is not None:
        assert size_of(text) == size
        return
    with pytest.raises(TtsError, match="is not a size"):
        size_of(text)


def test_the_program_makes_one_and_refuses_a_size_that_is_none(tmp_path, monkeypatch, capsys):
    def run(size):
        monkeypatch.setattr(sys, "argv", ["x", str(tmp_path / size), "--params", size])
        random_checkpoint.main()

    run("1M")
    assert "parameters, LlamaForCausalLM" in capsys.readouterr().out
    with pytest.raises(SystemExit, match="error: '1Q' is not a size such as 25M"):
        run("1Q")
    assert [folder.name for folder in tmp_path.iterdir()] == ["1M"]
