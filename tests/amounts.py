"""How much a test tries: enough for every run, and more in the long form (`scripts/test --all`)."""

import os

VARIABLE = "TTS_TEST_ALL"


def amount(usual: int, everything: int) -> int:
    """The first of the two, or the second in the long form."""
    return everything if os.environ.get(VARIABLE) else usual
