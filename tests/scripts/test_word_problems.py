"""Word problems are drawn by a seed, and read as a dataset."""

from itertools import islice
from pathlib import Path

from scripts.word_problems import rows, word_problems

from tts.datasets.load import load_problems


def test_a_seed_draws_the_same_problems_and_no_question_twice() -> None:
    drawn = list(islice(word_problems(3), 60))
    assert drawn == list(islice(word_problems(3), 60))
    assert drawn[:5] != list(islice(word_problems(4), 5))
    assert len({each.question for each in drawn}) == 60
    assert [each.operations for each in drawn[:4]] == [1, 2, 3, 1]


def test_they_are_a_dataset_with_whole_answers(tmp_path: Path) -> None:
    file = tmp_path / "words.jsonl"
    file.write_text("\n".join(rows(12, 0)))
    read = load_problems(str(file))
    assert [problem.level for problem in read[:3]] == [1, 2, 3]
    assert all(problem.answer and 2 <= int(problem.answer) <= 99 for problem in read)
