"""Dataset files: what is read, and what is refused with file and line."""

import json
from pathlib import Path

import pytest

from tts.build.errors import DatasetError
from tts.datasets.load import load_problems


def write(tmp_path, *lines):
    file = tmp_path / "set.jsonl"
    file.write_text(
        "\n".join(line if isinstance(line, str) else json.dumps(line) for line in lines)
    )
    return str(file)


GOOD = {"problem": "1 + 1?", "answer": "2"}


def test_both_spellings_and_gsm8k_answers(tmp_path):
    file = write(
        tmp_path,
        {"problem": "a", "answer": "1", "unique_id": "x/1", "level": 3},
        "",
        {"question": "b", "answer": "so\n#### 1,234", "id": 7},
        {"question": "c", "answer": 5},
    )
    first, second, third = load_problems(file)
    assert (first.id, first.level, first.answer) == ("x/1", 3, "1")
    assert second.id == "7"
    assert second.answer.replace(",", "") == "1234"
    assert (third.id, third.answer) == ("set:4", "5")
    assert load_problems(file, limit=1) == [first]


@pytest.mark.parametrize(
    ("line", "complaint"),
    [
        ("{not json", "line 2 is not JSON"),
        ("[1]", "line 2 must hold a JSON object, not list"),
        ({"answer": "2"}, "line 2 lacks the field 'problem' or 'question'; it has answer"),
        ({"problem": "x"}, "line 2 lacks the field 'answer'"),
        ({"problem": "  ", "answer": "2"}, "line 2: problem is '  '; it must be a text"),
        ({"problem": "x", "answer": None}, "line 2: answer is None"),
        ({"problem": "x", "answer": "2", "level": [1]}, "line 2: level is"),
        ({"problem": "x", "answer": "2", "id": "set:1"}, "'set:1' was used in line 1 already"),
    ],
)
def test_a_bad_line_is_named_even_beyond_the_limit(tmp_path, line, complaint):
    file = write(tmp_path, GOOD, line)
    with pytest.raises(DatasetError) as caught:
        load_problems(file, limit=1)
    assert complaint in str(caught.value)
    assert file in str(caught.value)


def test_missing_empty_and_binary_files(tmp_path):
    with pytest.raises(DatasetError, match="no dataset 'nowhere'"):
        load_problems("nowhere")
    with pytest.raises(DatasetError, match="holds no problems"):
        load_problems(write(tmp_path, ""))
    (tmp_path / "set.jsonl").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(DatasetError, match="cannot be read"):
        load_problems(str(tmp_path / "set.jsonl"))
    with pytest.raises(DatasetError, match="at least 1"):
        load_problems("demo", limit=0)


def test_demo_problems_follow_the_seed():
    assert load_problems("demo", limit=10, seed=1) == load_problems("demo", limit=10, seed=1)
    assert load_problems("demo", limit=10, seed=1) != load_problems("demo", limit=10, seed=2)
    assert {problem.level for problem in load_problems("demo", limit=10)} == {1, 2, 3, 4, 5}


@pytest.mark.parametrize(("name", "count"), [("math500_dev", 100), ("gsm8k_test", 1319)])
def test_public_datasets_are_read_as_they_are(name, count):
    file = Path(__file__).resolve().parents[3] / "shared" / "data" / f"{name}.jsonl"
    if not file.is_file():
        pytest.skip(f"{file} is not here")
    problems = load_problems(str(file))
    assert len(problems) == count
    assert all(problem.answer and problem.question for problem in problems)
    assert len({problem.id for problem in problems}) == count
