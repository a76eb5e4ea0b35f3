"""A damaged run folder gives what the whole one gives, or an error for the user."""

import random
import shutil
from contextlib import suppress

import pytest
import typer
from tests.amounts import amount
from tests.hostile.damaged_folders import COMMANDS, DAMAGES, OTHER, make, scripted_engines

from tts.base.errors import TtsError


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    folder = tmp_path_factory.mktemp("folders") / "whole"
    with scripted_engines():
        make(folder)
        yield folder


@pytest.mark.parametrize("name", COMMANDS)
def test_a_damaged_folder_never_shows_a_changed_result(whole, name):
    folders, read = COMMANDS[name]
    work = whole.with_name("work")
    shutil.copytree(whole, work)
    expected = read(work)
    shutil.rmtree(work)
    for case in range(amount(2, 6)):
        numbers = random.Random(f"{name}/{case}")
        shutil.copytree(whole, work)
        damage, folder = numbers.choice(DAMAGES), numbers.choice(folders)
        damage(work / folder, work / OTHER, numbers)
        with suppress(TtsError, typer.BadParameter):
            assert read(work) == expected, f"{folder} after {damage.__name__}, case {case}"
        shutil.rmtree(work)
