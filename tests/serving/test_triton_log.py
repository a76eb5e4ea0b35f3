"""The reason of a failure is found among the noise of the log."""

from pathlib import Path

import pytest

from tts.serving.server import triton_log

NOISE = (
    'W1120 14:18:49.17 5765 pinned_memory_manager.cc:273] "Unable to allocate"\n'
    'E1120 14:18:49.17 5765 server.cc:241] "CudaDriverHelper has not been initialized."\n'
)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (
            "E1120 14:18:50.79 5765 model.cc:642] \"failed to load 'prm_engine' version 1:"
            ' Internal: ValueError: no such engine: /a/b\\n\\nAt:\\n  /m/model.py(3): init\\n"\n'
            "error: creating server: Internal - failed to load all models\n",
            "model prm_engine failed to load: ValueError: no such engine: /a/b",
        ),
        (
            'E1120 14:24:52.77 6946 main.cc:245] "failed to start GRPC service: Unavailable - '
            "Socket '127.0.0.1:18003' already in use \"\n",
            "failed to start GRPC service: Unavailable - Socket '127.0.0.1:18003' already in use",
        ),
        ("error: cannot run /x: Permission denied\n", "cannot run /x: Permission denied"),
        ("tritonserver: cannot open shared object\n", "tritonserver: cannot open shared object"),
    ],
)
def test_reason(tmp_path: Path, text: str, reason: str):
    log = tmp_path / "triton.log"
    log.write_text(NOISE + text)
    assert triton_log.failure(log) == reason
    assert triton_log.port_was_taken(log) == ("already in use" in text)


def test_no_log_is_no_reason(tmp_path: Path):
    assert triton_log.failure(tmp_path / "none.log") == ""
