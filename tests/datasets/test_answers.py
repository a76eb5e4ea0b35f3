"""Answers as datasets write them: numbers with separators, letters, places and texts of choices."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.grading.sync import SyncGrader

from tts.base.errors import DatasetError
from tts.base.input_files import Unreadable
from tts.datasets.answers import LETTERS, read_answer, read_choice, with_letters
from tts.datasets.load import load_problems


@pytest.mark.parametrize(
    ("kind", "cell", "answer"),
    [
        (None, "so\n#### 1,234", "1234"),
        (None, "1,234", "1,234"),
        ("text", "a #### 5", "a #### 5"),
        ("gsm8k", "<<1+1=2>>2\n#### -1,002", "-1002"),
        ("number", "033", "33"),
        ("number", 7, "7"),
        ("number", "0", "0"),
        ("number", " $1,234.50 ", "1234.50"),
        ("number", "12 345", "12345"),
        ("number", "1\u202f234\u202f567", "1234567"),
        ("number", "-.5", "-0.5"),
        ("number", "−1'000", "-1000"),
        ("decimal-comma", "1.234,5", "1234.5"),
        ("decimal-comma", "12,5", "12.5"),
        ("decimal-comma", "1.234", "1234"),
        ("letter", "(b)", "B"),
        ("letter", "C.", "C"),
        ("index", 2, "C"),
    ],
)
def test_a_cell_is_read_as_the_dataset_says(kind, cell, answer):
    assert read_answer(cell, kind) == answer


@pytest.mark.parametrize(
    ("kind", "cell", "complaint"),
    [
        ("gsm8k", "18", "must stand after ####"),
        ("number", "12,34", "must be a number such as 1,234.5"),
        ("number", "1,234 567", "must be a number"),
        ("number", "1,2345", "must be a number"),
        ("number", "-", "must be a number"),
        ("number", "x", "must be a number"),
        ("number", "٣", "must be a number"),
        ("decimal-comma", "1,234.5", "must be a number such as 1.234,5"),
        ("letter", "AB", "must be a choice's letter"),
        ("index", -1, "must be a choice's letter, or its place"),
        ("index", "²", "must be a choice's letter"),
        (None, True, "is True; it must be a text"),
    ],
)
def test_what_a_cell_cannot_mean_is_refused(kind, cell, complaint):
    with pytest.raises(Unreadable, match=complaint):
        read_answer(cell, kind)


@given(st.integers(-(10**12), 10**12))
def test_separators_change_no_number(number):
    assert read_answer(f"{number:,}", "number") == str(number)
    assert read_answer(f"{number:_}".replace("_", "."), "decimal-comma") == str(number)


@given(
    st.lists(st.text("xyz0", min_size=2, max_size=3), min_size=2, max_size=26, unique=True),
    st.data(),
)
def test_the_letter_of_a_choice_is_found_by_letter_place_and_text(choices, data):
    place = data.draw(st.integers(0, len(choices) - 1))
    letter = LETTERS[place]
    assert read_choice(letter, choices, "letter") == letter
    assert read_choice(f"({letter.lower()})", choices, "letter") == letter
    assert read_choice(place, choices, None) == letter
    assert read_choice(str(place), choices, "index") == letter
    assert read_choice(choices[place], choices, "text") == letter
    assert f"({letter}) {choices[place]}\n" in with_letters("Which?", choices)


def test_a_choice_that_could_be_meant_in_two_ways_is_refused_until_the_kind_is_said():
    choices = ["1", "2", "0"]
    with pytest.raises(Unreadable, match="B by its index or A by its text; --answers says which"):
        read_choice("1", choices, None)
    assert read_choice("1", choices, "index") == "B"
    assert read_choice("1", choices, "text") == "A"
    assert read_choice(1, choices, None) == "B"
    for cell, complaint in (("E", "none of the 3 choices"), ("3", "none of the 3"), ([], "a text")):
        with pytest.raises(Unreadable, match=complaint):
            read_choice(cell, choices, None)
    with pytest.raises(Unreadable, match="the problem has choices: letter, index or text"):
        read_choice("1", choices, "number")


QUESTION = "Which is even?\n\n(A) 3\n(B) 4\n\nThe final answer is the letter of one choice."


BOTH = {"label": ["A", "B"], "text": ["3", "4"]}


@pytest.mark.parametrize(
    ("cells", "columns"),
    [
        ({"choices": ["3", "4"], "answer": 1}, "choices"),
        ({"choices": BOTH, "answer": "B"}, "choices"),
        ({"A": 3, "B": "4", "answer": "4"}, "A+B"),
    ],
)
def test_choices_are_lettered_in_the_question_however_they_are_written(write, cells, columns):
    file = write({"question": "Which is even?", **cells})
    (problem,) = load_problems(file, columns={"choices": columns})
    assert (problem.question, problem.answer) == (QUESTION, "B")
    (plain,) = load_problems(file)
    assert plain.question == "Which is even?"


@pytest.mark.parametrize(
    ("choices", "complaint"),
    [
        ("3, 4", "line 1: choices is '3, 4'; it must be a list of choices"),
        (["3"], "line 1: choices holds 1 choices; there must be 2 to 26"),
        ([*"abcdefghijklmnopqrstuvwxyz4"], "holds 27 choices"),
        (["3", " "], "line 1: choices is ' '; it must be a text"),
        (["5", "7"], "line 1: answer is '4', which is none of the 2 choices"),
    ],
)
def test_choices_that_cannot_be_asked_are_refused(write, choices, complaint):
    file = write({"question": "?", "choices": choices, "answer": "4"})
    with pytest.raises(DatasetError, match=complaint):
        load_problems(file, columns={"choices": "choices"})


def test_letters_are_graded_as_models_write_them():
    with SyncGrader(workers=1) as grader:
        for letter in "ABCDEFGH":
            other = "A" if letter != "A" else "B"
            for form in ("{}", "({})", r"\text{{{}}}", r"\text{{({})}}", r"\mathrm{{{}}}", "{}."):
                assert grader.equal_sync(form.format(letter), letter).equal, (form, letter)
                assert not grader.equal_sync(form.format(other), letter).equal, (form, letter)
