"""Long texts have the ids that they have, and do not keep other threads from their work."""

import sys
import threading

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tts.build.tokenizer import LONG, Tokenizer

PIECES = [
    "Compute 37 + 58.",
    "\n\n",
    "  ",
    "<|eot_id|>",
    "é中",
    "\U0001f600",
    "\x00",
    "## Step 1: ",
]


@pytest.fixture(scope="module")
def tokenizer(tokenizer_folder):
    return Tokenizer(tokenizer_folder)


@settings(max_examples=30)
@given(st.lists(st.sampled_from(PIECES) | st.text(max_size=10), min_size=1, max_size=30))
def test_a_long_text_is_encoded_and_decoded_as_a_short_one(tokenizer, pieces):
    text = "".join(pieces) or "7"
    whole = text * (LONG // len(text) + 1)
    library = tokenizer._tokenizer
    ids = tokenizer.encode(whole + "7")
    assert ids == library.encode(whole + "7", add_special_tokens=False).ids
    assert tokenizer.decode(ids) == library.decode(ids, skip_special_tokens=True)


@pytest.mark.parametrize("back", [False, True], ids=["encode", "decode"])
def test_other_threads_run_while_a_long_text_is_tokenised(tokenizer, back):
    """Python lets no other thread run by itself here: only one that gives the turn away."""
    text = "Compute 37 + 58. " * 20_000
    ids = tokenizer.encode(text) if back else []
    began, done = threading.Event(), threading.Event()

    def work():
        began.set()
        tokenizer.decode(ids) if back else tokenizer.encode(text)
        done.set()

    def ran_meanwhile():
        began.clear()
        done.clear()
        thread = threading.Thread(target=work)
        thread.start()
        began.wait()
        meanwhile = not done.is_set()
        thread.join()
        return meanwhile

    interval = sys.getswitchinterval()
    sys.setswitchinterval(1000)
    try:
        assert any(ran_meanwhile() for _ in range(20))
    finally:
        sys.setswitchinterval(interval)
