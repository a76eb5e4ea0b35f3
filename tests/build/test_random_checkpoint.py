"""The script that makes checkpoints with random weights."""

import subprocess
import sys
from pathlib import Path

import pytest

from tts.build.checkpoint import open_checkpoint
from tts.build.model_config import ARCHITECTURES
from tts.build.tensorrt.model_shape import known_names
from tts.build.tokenizer import Tokenizer

SCRIPT = Path(__file__).parents[2] / "scripts" / "make_random_checkpoint"


def make(*arguments: object) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(SCRIPT), *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, check=False)


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_it_is_a_whole_checkpoint_of_the_size_asked_for(tmp_path: Path, architecture: str) -> None:
    done = make("--params", "3M", "--architecture", architecture, tmp_path / "model")
    assert done.returncode == 0, done.stderr
    checkpoint = open_checkpoint(tmp_path / "model")
    assert checkpoint.config.architecture == architecture
    assert checkpoint.num_parameters == pytest.approx(3e6, rel=0.1)
    assert Tokenizer(tmp_path / "model").eos_ids


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_other_programs_know_what_it_is(tmp_path: Path, architecture: str) -> None:
    transformers = pytest.importorskip("transformers", reason="transformers is not installed")
    done = make("--params", "1M", "--architecture", architecture, tmp_path / "model")
    assert done.returncode == 0, done.stderr
    config = transformers.AutoConfig.from_pretrained(tmp_path / "model")
    assert config.architectures == [architecture]
    assert transformers.AutoConfig.for_model(config.model_type).model_type == config.model_type


def test_the_help_lists_the_shapes_that_are_known() -> None:
    shown = "".join(make("--help").stdout.split())  # lines may break inside a name
    assert all(name in shown for name in known_names())


def test_the_same_seed_gives_the_same_weights(tmp_path: Path) -> None:
    for name, seed in (("a", 1), ("b", 1), ("c", 2)):
        assert make("--params", "1M", "--seed", seed, tmp_path / name).returncode == 0
    a, b, c = ((tmp_path / name / "model.safetensors").read_bytes() for name in "abc")
    assert a == b != c


def test_mistakes_are_sentences(tmp_path: Path) -> None:
    for arguments, text in (
        (("--params", "25Q", tmp_path / "x"), "'25Q' is not a size"),
        (("--like", "Lama", tmp_path / "x"), "no published shape of 'Lama'"),
        (("--like", "Lama", tmp_path / "x"), "there are Llama-3.1-8B-Instruct, "),
        (("--params", "1M", tmp_path), "File exists"),
        (("--params", "1M", "--tokenizer", tmp_path, tmp_path / "x"), "no tokenizer.json"),
    ):
        done = make(*arguments)
        assert done.returncode != 0
        assert text in done.stderr
        assert "Traceback" not in done.stderr
