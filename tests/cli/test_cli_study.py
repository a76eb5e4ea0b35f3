"""`tts study` without a server: what it refuses."""

import pytest
from tests.cli.test_cli import tts


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ([], "name one, or --resume a study"),
        (["--resume", "nowhere", "--quick"], "a resumed study goes on as it began"),
        (["--resume", "nowhere", "--server", "embedded"], "a resumed study goes on as it began"),
        (["--resume", "nowhere"], "holds no study"),
        (["demo-gpu", "--dataset", "nothing"], "NVIDIA GPU"),
    ],
)
def test_mistakes_are_refused_before_anything_starts(tmp_path, arguments, said):
    code, _, err = tts("study", *arguments, home=tmp_path)
    assert code in (1, 2)
    assert said in err
    assert not list(tmp_path.glob("runs/*"))
