"""The log of a start beside the deployment: a pool that was cut short is named."""

import pytest

from tts.base import paths
from tts.build.spec import load_deployment
from tts.checks.machine import last_start
from tts.serving.contract import start_log_forms
from tts.serving.server.triton import LOG

H100 = load_deployment("llama-1b-prm-8b-h100-bf16")
FORMS = start_log_forms()


def lines(cut=0):
    """A start as planned; `cut` takes tokens off the verifier's pool."""
    for role, spec in H100.engines().items():
        tokens = spec.kv_cache.tokens - cut * (role == "verifier")
        pool, blocks = FORMS["pool"].example, FORMS["blocks"].example
        yield pool.replace("370816", str(tokens))
        yield blocks.replace("length=4096", f"length={spec.max_seq_len}")


@pytest.mark.parametrize(
    ("log", "states", "words"),
    [
        (["noise"], [], ""),
        ([*lines()], ["ok", "ok"], ""),
        ([*lines(cut=320)], ["note", "ok"], f"{H100.verifier.kv_cache.tokens - 320:,} tokens"),
        ([*lines(), FORMS["shortened"].example], ["ok", "note"], "5,185 tokens, where"),
    ],
)
def test_pools_and_lengths_of_the_last_start(home, log, states, words):
    file = paths.server_dir(H100.name) / LOG
    assert list(last_start(H100)) == []
    file.parent.mkdir(parents=True)
    file.write_text("\n".join(log))
    seen = list(last_start(H100))
    assert [each.state for each in seen] == states
    assert words in " ".join(each.found for each in seen)
