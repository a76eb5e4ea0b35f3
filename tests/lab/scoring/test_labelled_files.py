"""Labelled chains from files: published forms, the plain one, and what is refused by its place."""

import json

import pytest

from tts.base.errors import DatasetError
from tts.lab.scoring.chains import first_wrong, read_chains

STEPS = ["One.", "Two.", "Three."]
SHEPHERD = "How many? Step 1: 2 + 2 = 4. {}\nStep 2: 4 - 1 = 3. The answer is: 3 {}"
MARKED = SHEPHERD.format("ки", "ки")


def completion(text, rating):
    return {"text": text, "rating": rating, "flagged": None}


def prm_step(*completions, chosen=None, human=None):
    return {
        "completions": list(completions),
        "human_completion": human and {"text": human, "rating": None, "source": "human"},
        "chosen_completion": chosen,
    }


PRM800K = {
    "labeler": "x",
    "question": {"problem": "Q?", "ground_truth_answer": "3"},
    "label": {
        "steps": [
            prm_step(completion("One.", 0), chosen=0),
            prm_step(completion("No.", -1), completion("Or.", None), human="Two."),
            prm_step(completion("Three.\n\n# Answer\n\n4", -1), completion("Third.", 1)),
            {"completions": None, "human_completion": None, "chosen_completion": None},
        ],
        "finish_reason": "found_error",
    },
}


@pytest.fixture
def read(tmp_path):
    """Reads rows as a file of JSON lines, or of another suffix."""

    def reading(*rows, suffix=".jsonl", delimiter="\n\n"):
        file = tmp_path / f"set{suffix}"
        if suffix == ".parquet":
            arrow = pytest.importorskip("pyarrow")
            pytest.importorskip("pyarrow.parquet").write_table(
                arrow.Table.from_pylist(list(rows)), file
            )
        elif suffix == ".json":
            file.write_text(json.dumps(rows))
        else:
            file.write_text("\n".join(map(json.dumps, rows)))
        return read_chains([file], delimiter)

    return reading


PROCESS_BENCH = {
    "id": "gsm8k-7",
    "generator": "G",
    "problem": "Q?",
    "steps": STEPS,
    "final_answer_correct": False,
    "label": 1,
}


@pytest.mark.parametrize("suffix", [".jsonl", ".json", ".parquet"])
def test_process_bench_labels_the_steps_up_to_the_first_wrong_one(read, suffix):
    whole = PROCESS_BENCH | {"id": "omnimath-2", "label": -1, "final_answer_correct": True}
    wrong, right = read(PROCESS_BENCH, whole, suffix=suffix).chains
    assert (wrong.name, wrong.problem, wrong.level) == ("gsm8k-7", "gsm8k-7", "gsm8k")
    assert (wrong.steps, wrong.right_steps, wrong.right) == (
        tuple(STEPS),
        (True, False, None),
        False,
    )
    assert (right.right_steps, right.right, right.level) == ((True,) * 3, True, "omnimath")
    assert right.problem == wrong.problem, "one question is one problem"
    assert right.place.endswith("2")


def test_prm800k_gives_the_labelled_path_and_each_alternative(read):
    result = read(PRM800K)
    assert [(chain.steps, chain.right_steps) for chain in result.chains] == [
        (("One.", "Two.", "Three.\n# Answer\n4"), (True, None, False)),
        (("One.", "No."), (None, False)),
        (("One.", "Two.", "Third."), (None, None, True)),
    ]
    assert {chain.problem for chain in result.chains} == {"set:0"}
    assert [chain.name for chain in result.chains] == ["set:0/1", "set:0/2", "set:0/3"]
    assert result.notes == ["1 row as PRM800K", "steps in which the step delimiter was replaced: 1"]


def test_math_shepherd_marks_become_labels(read):
    row = {"input": MARKED, "label": SHEPHERD.format("+", "-"), "task": "GSM8K"}
    (chain,) = read(row).chains
    assert chain.question == "How many?"
    assert chain.steps == ("Step 1: 2 + 2 = 4.", "Step 2: 4 - 1 = 3. The answer is: 3")
    assert (chain.right_steps, chain.right, chain.level) == ((True, False), False, "GSM8K")


@pytest.mark.parametrize(
    ("labels", "right_steps", "right"),
    [
        ({"labels": [True, "-", None]}, (True, False, None), None),
        ({"labels": [1, 0, 1.0]}, (True, False, True), None),
        ({"first_wrong": 2}, (True, True, False), None),
        ({"first_wrong": -1, "correct": True}, (True, True, True), True),
        ({"correct": 0}, None, False),
        ({}, None, None),
    ],
)
def test_plain_rows(read, labels, right_steps, right):
    (chain,) = read({"problem": "Q?", "steps": STEPS, "level": 3.0, **labels}).chains
    assert (chain.right_steps, chain.right, chain.level) == (right_steps, right, "3")
    ending = {"problem": "Q?", "steps": [f"{step}\n\n" for step in STEPS], **labels}
    assert read(ending).chains[0].steps == tuple(STEPS)
    trl = {"prompt": "Q?", "completions": STEPS, **labels}
    assert read(trl).chains[0].right_steps == right_steps


def test_candidates_are_texts_or_steps(read):
    row = {
        "id": 5,
        "problem": "Q?",
        "candidates": ["One.\n\nTwo.\n\n", STEPS],
        "correct": [True, None],
    }
    one, other = read(row).chains
    assert (one.steps, one.right, one.name) == (("One.", "Two."), True, "5/1")
    assert (other.steps, other.right, other.name) == (tuple(STEPS), None, "5/2")
    assert one.problem == other.problem == "5"
    assert read(row | {"candidates": ["a b", ["c"]]}, delimiter=None).chains[0].steps == ("a b",)


PLAIN = {"problem": "Q?", "steps": STEPS}


@pytest.mark.parametrize(
    ("row", "message"),
    [
        (PLAIN | {"labels": [True]}, "labels holds 1 labels, and there are 3 steps"),
        (PLAIN | {"labels": "yes"}, "labels holds 'yes', and"),
        (PLAIN | {"labels": [1, -1, 1]}, "label 2 of labels is -1; it must be true"),
        (PLAIN | {"first_wrong": 3}, "first_wrong is 3; it must be the index of one of 3 steps"),
        (PLAIN | {"first_wrong": 0.5}, "first_wrong is 0.5"),
        (PLAIN | {"correct": "yes"}, "correct is 'yes'; it must be true, false or null"),
        (PLAIN | {"steps": []}, r"steps is \[\]"),
        (PLAIN | {"steps": ["a", " "]}, "step 2 of steps is ' '"),
        (PLAIN | {"steps": ["a", "b\n\nc"]}, r"step 2 holds the step delimiter '\\n\\n'"),
        (PLAIN | {"problem": ""}, "problem is ''; it must be a text"),
        (PLAIN | {"id": ["x"]}, r"id is \['x'\]"),
        (PROCESS_BENCH | {"label": 3}, "label is 3"),
        (PROCESS_BENCH | {"label": None}, "label is None"),
        ({"problem": "Q?", "candidates": []}, r"candidates is \[\]"),
        ({"problem": "Q?", "candidates": ["\n\n"]}, r"candidate 1 is \[\]"),
        ({"problem": "Q?", "candidates": ["a"], "correct": [True, True]}, "correct is"),
        (
            {"problem": "Q?", "answer": "3"},
            "no chain of steps; its fields are answer, problem",
        ),
    ],
)
def test_a_row_is_refused_by_its_place(read, row, message):
    good = PLAIN | {"problem": "Other?", "labels": [True, True, False]}
    with pytest.raises(DatasetError, match=rf"set\.jsonl, line 2.*{message}"):
        read(good, row)


def test_an_id_is_of_one_row(read):
    with pytest.raises(DatasetError, match=r"line 2: id 'a' was used in .*line 1 already"):
        read(PLAIN | {"id": "a"}, PLAIN | {"id": "a"})
    sampled = {"id": "a", "problem": "Q?", "candidates": ["x"]}
    with pytest.raises(DatasetError, match="id 'a/1' was used"):
        read(sampled, sampled | {"problem": "Other?"})


def test_irregular_rows_of_published_files_are_left_out_and_counted(read):
    good = {"input": MARKED, "label": SHEPHERD.format("+", "-")}
    bad = [
        {"input": MARKED, "label": SHEPHERD.format("+", "")},
        {"input": MARKED.replace("Step 1:", ""), "label": SHEPHERD.format("+", "-")},
        {"question": {"problem": "Q?"}, "label": {"steps": [{"completions": None}]}},
        {"question": {"problem": "Q?"}, "label": {"steps": []}},
    ]
    result = read(good, *bad)
    assert len(result.chains) == 1
    assert "rows left out: 4, the first: " in result.notes[1]
    assert "line 2: label has no + or - where input marks the end of step 2" in result.notes[1]
    with pytest.raises(DatasetError, match=r"no chains to score.*line 1"):
        read(*bad)


def test_lines_that_are_nan_or_no_json_are_named(tmp_path):
    file = tmp_path / "set.jsonl"
    file.write_text('{"problem": "Q?", "steps": ["a"], "labels": [NaN]}')
    with pytest.raises(DatasetError, match=r"set\.jsonl, line 1 cannot be read.*NaN"):
        read_chains([file])


@pytest.mark.parametrize(
    ("labels", "first"),
    [
        ((True, True), -1),
        ((True, False, None), 1),
        ((False,), 0),
        ((True, None, False), None),
        ((None, False), None),
        (None, None),
    ],
)
def test_the_first_wrong_step_where_labels_say_it(labels, first):
    assert first_wrong(labels) == first
