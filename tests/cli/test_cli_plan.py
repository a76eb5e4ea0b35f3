"""`tts plan`, in a process of its own."""

import re
from pathlib import Path

import pytest
from tests.bundled import FOR_GPUS
from tests.cli.test_cli import tts

from tts.build import paths
from tts.build.spec import load_deployment

BUNDLED = paths.deployments_dir()


@pytest.fixture
def own(tmp_path):
    """A deployment of one's own, whose pools are not planned yet."""
    text = (BUNDLED / "demo-gpu.yaml").read_text()
    text = text.replace("../checkpoints", str(BUNDLED.parent / "checkpoints"))
    file = tmp_path / "own.yaml"
    file.write_text(text.replace("tokens: 40960", "tokens: 320  "))
    return file


def test_a_plan_explains_itself(tmp_path):
    code, out, err = tts("plan", "llama-1b-prm-8b-h100-bf16", home=tmp_path)
    assert (code, err) == (0, "")
    for words in (
        "NVIDIA H100",
        "nothing was run",
        "generator, rank 0",
        "verifier, rank 0",
        "weights",
        "generator KV",
        "131,072",
        "full sequences",
        "One search step of 512 beams (roofline estimate)",
        "Equal halves",
        "kv_cache_free_gpu_mem_fraction",
        "kv_cache.tokens in the file: as planned.",
    ):
        assert words in out
    assert re.search(r"^[WAXGV.]{72}$", out, re.MULTILINE)
    assert list(tmp_path.iterdir()) == []
    page = Path(__file__).resolve().parents[2] / "docs" / "explanation" / "memory.md"
    shown = "\n".join(line.rstrip() for line in out.strip().splitlines())
    of_gpus, _, _ = shown.partition("\n\n┏━━━━━━━━━━━━━━━━━━━━━━━━━┳")
    assert len(of_gpus) < len(shown), "the tables of engines follow that of the GPUs"
    assert f"```\n{of_gpus}\n```" in page.read_text(), "the page shows what an older plan said"


def test_a_plan_is_written_only_when_asked(tmp_path, own):
    before = own.read_text()
    code, out, _ = tts("plan", own, home=tmp_path / "home")
    assert code == 0
    assert "generator.kv_cache.tokens: 320 -> 40960" in out
    assert "verifier.kv_cache.tokens: as planned" in out
    assert "--write" in out
    assert own.read_text() == before
    code, out, _ = tts("plan", own, "--write", home=tmp_path / "home")
    assert code == 0
    assert f"Written to {own}" in out
    assert load_deployment(own).generator.kv_cache.tokens == 40960
    assert own.read_text() == before.replace("tokens: 320  ", "tokens: 40960")
    code, out, _ = tts("plan", own, home=tmp_path / "home")
    assert "as planned." in out


def test_pools_that_do_not_fit_are_pointed_out(tmp_path, own):
    own.write_text(own.read_text().replace("tokens: 65536", "tokens: 99000000"))
    code, out, _ = tts("plan", own, home=tmp_path)
    assert code == 0
    assert "With the file's values GPU 0 lacks" in out


@pytest.mark.parametrize(
    ("name", "words"),
    [
        (("demo", "--write"), "target is 'openvino'"),
        (("nowhere",), "no deployment 'nowhere'"),
    ],
)
def test_what_cannot_be_planned(tmp_path, name, words):
    code, out, err = tts("plan", *name, home=tmp_path)
    assert (code, out) == (2, "")
    assert words in err


def test_a_plan_for_a_cpu_adds_up_what_the_pair_takes(tmp_path):
    code, out, err = tts("plan", "demo", home=tmp_path)
    assert (code, err) == (0, "")
    rows = {
        cells[0]: cells[-1]
        for line in out.splitlines()
        if line.startswith("│") and (cells := [cell.strip() for cell in line.split("│")[1:-1]])
    }
    parts = (rows["generator, fp32"], rows["verifier, fp32"], rows["server"])
    assert abs(int(rows["pair"]) - sum(map(int, parts))) <= 2
    assert out.strip().splitlines()[-1].startswith("There are ")


@pytest.mark.parametrize("name", FOR_GPUS)
def test_every_bundled_gpu_deployment_plans(tmp_path, name):
    code, out, _ = tts("plan", name, home=tmp_path)
    assert code == 0
    assert "as planned." in out
