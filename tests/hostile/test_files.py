"""Files that nobody would write are read, or refused in a sentence: no traceback, no hang."""

import random
import shutil
from contextlib import suppress

import pytest
from tests.amounts import amount
from tests.hostile.mutations import mutated
from tests.hostile.readers import readers
from tests.runs.recorded import RECORDED

from tts.base.errors import TtsError

LONGEST_S = 60
"""For all mutations of a file; each takes milliseconds."""
READERS = readers(RECORDED)


@pytest.fixture
def folder(tmp_path, reader):
    for beside in reader.beside:
        shutil.copy(beside, tmp_path)
    return tmp_path


def write(folder, reader, part):
    header = len(part).to_bytes(8, "little") if reader.header else b""
    (folder / reader.file).write_bytes(header + part + reader.data)


@pytest.mark.parametrize("reader", READERS.values(), ids=READERS)
def test_a_valid_file_is_read(reader, folder):
    write(folder, reader, reader.valid)
    reader.read(folder)


@pytest.mark.timeout(LONGEST_S)
@pytest.mark.parametrize("reader", READERS.values(), ids=READERS)
def test_a_mutated_file_is_read_or_refused_in_a_sentence(reader, folder):
    for number in range(amount(15, 100)):
        write(folder, reader, mutated(reader.valid, random.Random(number)))
        with suppress(TtsError):
            reader.read(folder)
