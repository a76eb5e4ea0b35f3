"""Checkpoints with random weights, and the command that makes them."""

from pathlib import Path

import pytest
from tests.cli.runner import tts

from tts.build.checkpoint import open_checkpoint
from tts.build.errors import TtsError
from tts.build.model_config import ARCHITECTURES
from tts.build.paths import deployments_dir
from tts.build.random_checkpoint import make_random_checkpoint, size_of
from tts.build.tensorrt.model_shape import known_names
from tts.build.tokenizer import Tokenizer

TOKENIZER = deployments_dir().parent / "checkpoints" / "demo-generator"


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_it_is_a_whole_checkpoint_of_the_size_asked_for(tmp_path: Path, architecture: str) -> None:
    folder = tmp_path / "model"
    make_random_checkpoint(
        folder, tokenizer=TOKENIZER, parameters=3_000_000, architecture=architecture
    )
    checkpoint = open_checkpoint(folder)
    assert checkpoint.config.architecture == architecture
    assert checkpoint.num_parameters == pytest.approx(3e6, rel=0.1)
    assert Tokenizer(folder).eos_ids


@pytest.mark.parametrize("architecture", ARCHITECTURES)
@pytest.mark.usefixtures("torch")
def test_other_programs_know_what_it_is(tmp_path: Path, architecture: str) -> None:
    import transformers

    folder = tmp_path / "model"
    make_random_checkpoint(
        folder, tokenizer=TOKENIZER, parameters=1_000_000, architecture=architecture
    )
    config = transformers.AutoConfig.from_pretrained(folder)
    assert config.architectures == [architecture]
    assert transformers.AutoConfig.for_model(config.model_type).model_type == config.model_type


def test_the_same_seed_gives_the_same_weights(tmp_path: Path) -> None:
    for name, seed in (("a", 1), ("b", 1), ("c", 2)):
        make_random_checkpoint(
            tmp_path / name, tokenizer=TOKENIZER, parameters=1_000_000, seed=seed
        )
    a, b, c = ((tmp_path / name / "model.safetensors").read_bytes() for name in "abc")
    assert a == b != c


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"like": "Lama"}, "no published shape of 'Lama'"),
        ({"parameters": 10**6, "architecture": "T5"}, "no architecture 'T5'"),
        ({}, "Give either"),
        ({"parameters": 10**6, "like": "Lama"}, "Give either"),
        ({"parameters": 10**6, "tokenizer": Path("nowhere")}, "nowhere"),
        ({"parameters": 10**6, "out": Path(__file__) / "x"}, "cannot be made"),
        ({"parameters": 10**6, "out": Path(__file__).parent}, "cannot be made"),
    ],
)
def test_mistakes_are_sentences(tmp_path: Path, changes: dict, said: str) -> None:
    arguments = {"out": tmp_path / "x", "tokenizer": TOKENIZER, **changes}
    with pytest.raises(TtsError, match=said):
        make_random_checkpoint(arguments.pop("out"), **arguments)
    assert not (tmp_path / "x").exists()


def test_an_unknown_model_lists_the_known_ones(tmp_path: Path) -> None:
    with pytest.raises(TtsError) as caught:
        make_random_checkpoint(tmp_path / "x", tokenizer=TOKENIZER, like="Lama")
    assert all(name in caught.value.message for name in known_names())


@pytest.mark.parametrize(("text", "size"), [("25M", 25_000_000), ("1.2b", 1_200_000_000)])
def test_sizes_have_units(text: str, size: int) -> None:
    assert size_of(text) == size


@pytest.mark.parametrize("text", ["25Q", "25", "-1M", "0M", "M"])
def test_what_is_no_size_is_refused(text: str) -> None:
    with pytest.raises(TtsError, match="is not a size"):
        size_of(text)


def test_the_command_makes_one_and_says_what_it_is(tmp_path: Path) -> None:
    done = tts("random-checkpoint", tmp_path / "model", "--params", "1M")
    assert done.code == 0, done.err
    assert "parameters, LlamaForCausalLM" in done.said
    assert open_checkpoint(tmp_path / "model").num_parameters == pytest.approx(1e6, rel=0.1)
    for size in (["--params", "1Q"], []):
        assert tts("random-checkpoint", tmp_path / "other", *size).code == 2
