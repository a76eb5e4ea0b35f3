"""`tts plan`: what it explains, and when it writes."""

import re
from pathlib import Path

import pytest
from tests.bundled import FOR_GPUS
from tests.cli.runner import LLAMA, tts

from tts.build.spec import load_deployment


def test_a_plan_explains_itself_as_the_page_shows(home):
    done = tts("plan", LLAMA)
    assert (done.code, done.err) == (0, "")
    for words in ("131,072", "One search step of 512 beams (roofline estimate)", "Equal halves"):
        assert words in done.out
    assert re.search(r"^[WAXGV.]{72}$", done.out, re.MULTILINE)
    assert not home.exists()
    page = Path(__file__).resolve().parents[2] / "docs" / "guides" / "tune.md"
    shown = "\n".join(line.rstrip() for line in done.out.strip().splitlines())
    of_gpus, _, _ = shown.partition("\n\n┏━━━━━━━━━━━━━━━━━━━━━━━━━┳")
    assert len(of_gpus) < len(shown), "the tables of engines follow that of the GPUs"
    assert f"```\n{of_gpus}\n```" in page.read_text(), "the page shows what an older plan said"


def test_a_plan_is_written_only_when_asked(unplanned):
    before = unplanned.read_text()
    done = tts("plan", unplanned)
    assert done.code == 0
    assert "generator.kv_cache.tokens: 320 -> 40960" in done.out
    assert "verifier.kv_cache.tokens: as planned" in done.out
    assert "--write" in done.out
    assert unplanned.read_text() == before
    done = tts("plan", unplanned, "--write")
    assert done.code == 0
    assert f"Written to {unplanned}" in done.out
    assert load_deployment(unplanned).generator.kv_cache.tokens == 40960
    assert unplanned.read_text() == before.replace("tokens: 320  ", "tokens: 40960")
    assert "as planned." in tts("plan", unplanned).out


def test_pools_that_do_not_fit_are_pointed_out(unplanned):
    unplanned.write_text(unplanned.read_text().replace("tokens: 65536", "tokens: 99000000"))
    done = tts("plan", unplanned)
    assert done.code == 0
    assert "With the file's values GPU 0 lacks" in done.out


def test_a_plan_for_a_cpu_adds_up_what_the_pair_takes():
    done = tts("plan", "demo")
    assert (done.code, done.err) == (0, "")
    rows = {
        cells[0]: cells[-1]
        for line in done.out.splitlines()
        if line.startswith("│") and (cells := [cell.strip() for cell in line.split("│")[1:-1]])
    }
    parts = (rows["generator, fp32"], rows["verifier, fp32"], rows["server"])
    assert abs(int(rows["pair"]) - sum(map(int, parts))) <= 2
    assert done.out.strip().splitlines()[-1].startswith("There are ")


@pytest.mark.parametrize("name", FOR_GPUS)
def test_every_bundled_gpu_deployment_plans(name):
    done = tts("plan", name)
    assert done.code == 0
    assert "as planned." in done.out
