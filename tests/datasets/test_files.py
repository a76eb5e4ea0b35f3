"""Dataset files: what is read, and what is refused with file and line."""

import gzip
import json
import os

import pytest

from tts.base.errors import DatasetError
from tts.datasets.load import load_dataset, load_problems
from tts.datasets.options import DatasetOptions

GOOD = {"problem": "1 + 1?", "answer": "2"}


def test_both_spellings_and_gsm8k_answers(write):
    file = write(
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


def test_a_file_without_answers_has_problems_without_references(write):
    rows = {"question": "a", "options": ["1", "2"]}, {"question": "b", "options": ["3", "4"]}
    said = []
    file = write(*rows)
    problems = load_dataset(str(file), say=said.append)
    assert [problem.answer for problem in problems.problems] == [None, None]
    assert problems.source.endswith("no answers, so no accuracy")
    lettered = load_dataset(str(file), options=DatasetOptions(columns={"choices": "options"}))
    assert lettered.problems[0].answer is None
    assert lettered.problems[0].question != "a"
    with pytest.raises(DatasetError, match=r"lacks the field 'final'"):
        load_dataset(str(file), options=DatasetOptions(columns={"answer": "final"}))
    mixed = write(rows[0], {**rows[1], "answer": "3"})
    with pytest.raises(DatasetError, match="line 2 has an answer, and the rows before it lack one"):
        load_dataset(str(mixed))


def test_an_answer_of_null_is_none_and_leaves_the_others_theirs(write):
    rows = [{"problem": f"{each}", "answer": each or None} for each in range(4)]
    said = []
    found = load_dataset(str(write(*rows)), say=said.append)
    assert [problem.answer for problem in found.problems] == [None, "1", "2", "3"]
    assert found.source.endswith("1 of 4 problems without an answer")
    absent = load_problems(write({"problem": "a"}, rows[0]))
    assert [problem.answer for problem in absent] == [None, None]
    with pytest.raises(DatasetError, match=r"line 3 lacks the field 'answer'"):
        load_problems(write(*rows[:2], {"problem": "a", "anwser": "1"}))


@pytest.mark.parametrize(
    ("line", "complaint"),
    [
        ("{not json", "line 2 cannot be read: it is not JSON"),
        ("[1]", "line 2 must hold a JSON object."),
        ({"answer": "2"}, "line 2 lacks the field 'problem' or 'question'; it has answer"),
        ({"problem": "x"}, "line 2 lacks the field 'answer'"),
        ({"problem": "  ", "answer": "2"}, "line 2: problem is '  '; it must be a text"),
        ({"problem": "x", "answer": True}, "line 2: answer is True"),
        ({"problem": "x", "answer": "2", "level": [1]}, "line 2: level is"),
        ({"problem": "x", "answer": "2", "id": {}}, "line 2: id is {}; it must be a text or a num"),
        ({"problem": "x", "answer": "2", "unique_id": [1]}, "line 2: unique_id is [1]"),
        ("[" * 100_000, "line 2 cannot be read: it is nested more than 64 levels deep"),
        ('{"problem": "' + "x" * 10**7 + '"}', "line 2 has more than 1,000,000 bytes"),
        ('{"problem": "x", "answer": NaN}', "line 2 cannot be read: it holds NaN"),
        ('{"problem": "x", "answer": 1e999}', "line 2 cannot be read: it holds a number beyond"),
        ('{"problem": "x", "answer": ' + "9" * 5000 + "}", "line 2 cannot be read: it holds a num"),
        (r'{"problem": "\ud800", "answer": "2"}', r"line 2 cannot be read: it holds half of a sur"),
        ('{"problem": "x", "problem": "y", "answer": "2"}', "the field 'problem' is given twice"),
        (
            {"problem": "x", "answer": "2", "id": "set:1"},
            "set.jsonl, line 1 already; ids must be unique",
        ),
    ],
)
def test_a_bad_line_is_named_even_beyond_the_limit(write, line, complaint):
    file = write(GOOD, line)
    with pytest.raises(DatasetError) as caught:
        load_problems(file, limit=1)
    assert complaint in str(caught.value)
    assert file in str(caught.value)


def test_missing_empty_and_binary_files(write, tmp_path):
    with pytest.raises(DatasetError, match="no dataset 'nowhere'"):
        load_problems("nowhere")
    with pytest.raises(DatasetError, match="holds no problems"):
        load_problems(write(""))
    (tmp_path / "set.jsonl").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(DatasetError, match=r"line 1 cannot be read: it is not UTF-8: byte 0xff"):
        load_problems(str(tmp_path / "set.jsonl"))
    with pytest.raises(DatasetError, match="at least 1"):
        load_problems("demo", limit=0)


def test_demo_problems_follow_the_seed():
    assert load_problems("demo", limit=10, seed=1) == load_problems("demo", limit=10, seed=1)
    assert load_problems("demo", limit=10, seed=1) != load_problems("demo", limit=10, seed=2)
    assert {problem.level for problem in load_problems("demo", limit=10)} == {1, 2, 3, 4, 5}


@pytest.mark.parametrize(("name", "count"), [("math500_dev", 100), ("gsm8k_test", 1319)])
def test_public_datasets_are_read_as_they_are(published, name, count):
    problems = load_problems(str(published(f"{name}.jsonl")))
    assert len({problem.id for problem in problems}) == len(problems) == count
    assert all(problem.answer and problem.question for problem in problems)


def test_a_byte_order_mark_belongs_to_no_problem(tmp_path):
    file = tmp_path / "set.jsonl"
    file.write_bytes(b"\xef\xbb\xbf" + json.dumps(GOOD).encode() + b"\r\n")
    (problem,) = load_problems(str(file))
    assert (problem.question, problem.answer) == ("1 + 1?", "2")


def test_a_problem_whose_id_is_null_or_blank_is_called_by_its_line(write):
    file = write({**GOOD, "id": None}, {**GOOD, "unique_id": " ", "id": 7})
    assert [problem.id for problem in load_problems(file)] == ["set:1", "7"]


def test_pipes_devices_folders_and_impossible_paths_are_no_datasets(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    for dataset, complaint in (
        (str(tmp_path / "pipe"), "is a pipe or a device, not a dataset file"),
        ("/dev/zero", "is a pipe or a device"),
        (str(tmp_path), "has no files that are named by their split"),
        ("x" * 5000, "names no dataset: a path may have"),
        ("a\0b", "NUL"),
        ("~no-such-user/set.jsonl", "no home folder for '~no-such-user'"),
    ):
        with pytest.raises(DatasetError, match=complaint):
            load_problems(dataset)


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        (
            "set.csv",
            b"problem,answer\r1 + 1?,2\r",
            "line 1 cannot be read: a CR stands in it without LF",
        ),
        ("set.jsonl", b'{"problem": "1?", "answer": ' + b"9" * 5000, "more than 4,300 digits"),
        ("set.jsonl", gzip.compress(b"{}"), "is packed by gzip"),
        ("set.parquet", b"version https://git-lfs.github.com/spec/v1\noid", "pointer of git-lfs"),
    ],
    ids=["carriage returns", "digits", "gzip", "git-lfs"],
)
def test_what_is_no_dataset_is_called_what_it_is(tmp_path, name, content, words):
    (tmp_path / name).write_bytes(content)
    with pytest.raises(DatasetError, match=words):
        load_problems(str(tmp_path / name))


def test_a_cell_of_csv_may_be_as_long_as_a_line(tmp_path):
    (tmp_path / "set.csv").write_text(f"problem,answer\n{'x' * 500_000},2\n")
    (problem,) = load_problems(str(tmp_path / "set.csv"))
    assert len(problem.question) == 500_000


def test_more_generated_problems_than_fit_into_memory_are_refused():
    with pytest.raises(DatasetError, match="limit is 1,000,000,000; dataset demo has at most"):
        load_problems("demo", limit=10**9)
