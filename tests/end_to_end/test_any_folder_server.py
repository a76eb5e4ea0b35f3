"""A home folder of any name, and an engine with one wrong bit: with a real server and without."""

import shutil

import pytest
from tests.end_to_end.commands import quiet

pytestmark = pytest.mark.server
NASTY = "-a 'b\" $HOME `c`\\:;&,ü用\n"
SOLVE = ("solve", "demo", "Compute 12 + 30 - 5.", "--n", "4")


@pytest.fixture
def nasty(new_home, tmp_path, monkeypatch):
    home = tmp_path / NASTY / ("long" * 30)
    shutil.copytree(new_home(), home)
    (home / "tmp").mkdir()
    for name in ("HOME", "TMPDIR"):
        monkeypatch.setenv(name, str(home / "tmp"))
    with quiet(home) as tts:
        yield tts


@pytest.mark.parametrize("server", ["triton", "embedded"])
def test_a_home_of_any_name_serves_and_a_wrong_bit_is_refused(nasty, server):
    code, out, err = nasty.run(*SOLVE, "--server", server)
    assert (code, "answer: 37" in out) == (0, True), err
    weights = nasty.home / "built" / "demo" / "generator" / "openvino_model.bin"
    damaged = bytearray(weights.read_bytes())
    damaged[len(damaged) // 2] ^= 1
    weights.write_bytes(damaged)
    code, _, err = nasty.run(*SOLVE, "--server", server)
    assert code != 0
    assert "openvino_model.bin is not the file that was built" in err
    assert "Run: tts build-engines demo" in err
