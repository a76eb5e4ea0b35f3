"""What there is to replay, and what is refused."""

import pytest
from tests.runs.replay.recordings import load

from tts.build.errors import RunError
from tts.runs.replay import open_recording


def test_what_does_not_fit_the_recording_is_refused_by_name(tiny_deployment, recorded, tmp_path):
    _, folder = recorded
    verifier = tiny_deployment.verifier.model_copy(update={"max_seq_len": 30})
    with pytest.raises(RunError, match=r"scored a dialogue of \d+ .* verifier.max_seq_len"):
        load(folder, tiny_deployment.model_copy(update={"verifier": verifier}))
    generator = tiny_deployment.generator.model_copy(update={"system_prompt": "Think."})
    with pytest.raises(RunError, match=r"its generator.system_prompt was .* is 'Think.' here"):
        load(folder, tiny_deployment.model_copy(update={"generator": generator}))
    with pytest.raises(RunError, match="holds no run"):
        open_recording(tmp_path)
    (folder / "summary.json").unlink()
    with pytest.raises(RunError, match="has not finished"):
        open_recording(folder)
