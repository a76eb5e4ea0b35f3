"""Datasets in CSV, TSV and Parquet files, and columns that the user names."""

import builtins
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tts.base.errors import DatasetError
from tts.datasets.load import load_dataset, load_problems
from tts.datasets.options import DatasetOptions
from tts.datasets.rows import parse_columns

try:
    import pyarrow
    from pyarrow import parquet
except ImportError:  # not here, or not for this NumPy
    pyarrow = None

needs_pyarrow = pytest.mark.skipif(pyarrow is None, reason="pyarrow cannot be imported")
PARQUET = pytest.param(".parquet", marks=needs_pyarrow)
MAPPED = {"problem": "q", "answer": "final", "id": "name", "level": "difficulty"}
ROWS = [
    {"q": "1 + 1?", "final": "2", "name": "one", "difficulty": "easy"},
    {"q": "Two\nlines, a comma", "final": "1,234", "name": "two", "difficulty": "hard"},
]


@pytest.fixture
def table(tmp_path):
    """Writes rows in a format."""

    def written(suffix, rows=ROWS):
        file = tmp_path / f"set{suffix}"
        match suffix:
            case ".jsonl":
                file.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
            case ".json":
                file.write_text(json.dumps(rows, indent=1))
            case ".parquet":
                parquet.write_table(pyarrow.Table.from_pylist(rows), file)
            case _:
                by = "," if suffix == ".csv" else "\t"
                lines = [by.join(rows[0]), *(by.join(f'"{c}"' for c in r.values()) for r in rows)]
                file.write_text("\n".join(lines))
        return str(file)

    return written


@pytest.mark.parametrize("suffix", [".jsonl", ".json", ".csv", ".tsv", PARQUET])
def test_every_format_gives_the_same_problems_by_mapped_columns(table, suffix):
    first, second = load_problems(table(suffix), columns=MAPPED, answers="number")
    assert (first.id, first.question, first.answer, first.level) == ("one", "1 + 1?", "2", "easy")
    assert second.question == "Two\nlines, a comma"
    assert second.answer == "1234"


@pytest.mark.parametrize("suffix", [".jsonl", ".json", ".csv", PARQUET])
def test_a_column_that_is_not_there_is_refused_with_those_that_are(table, suffix):
    file = table(suffix)
    for role in MAPPED:
        with pytest.raises(DatasetError) as caught:
            load_problems(file, columns=MAPPED | {role: "finall"})
        assert f"{file}, " in str(caught.value)
        assert "lacks the field 'finall'; it has difficulty, final, name, q" in str(caught.value)


def test_what_was_read_from_which_column_is_said(table):
    file = table(".csv")
    dataset = load_dataset(file, limit=1, options=DatasetOptions(columns=MAPPED))
    assert dataset.source == (
        f"{file}: 1 of 2 problems; problem from 'q', answer from 'final', id from 'name', "
        "level from 'difficulty'"
    )
    assert load_dataset("demo", limit=1).source == ""


@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        ("question,answer\n1?,1\n2?\n", "line 3 has 1 cells, but the header names 2 columns"),
        ("question,answer\n1?,1,5\n", "line 2 has 3 cells"),
        ("question,question\n", "line 1: the column 'question' is named twice"),
        ('question,answer\n"1?,1\n', "line 2 cannot be read: unexpected end of data"),
        ('question,answer\n"1?"x,1\n', "line 2 cannot be read: ',' expected"),
        ("question,answer\n1?,1\n\n2?,\n", "line 4: answer is ''; it must be a text"),
        ("question,answer,id\n1?,1,a\n2?,2,a\n", "set.csv, line 2 already; ids must"),
        ("question,answer\n" + "x" * 1_100_000 + ",1\n", "line 2 has more than 1,000,000 bytes"),
        ("question,answer\n\udcff,1\n", "line 2 cannot be read: it is not UTF-8"),
        ('\ufeffquestion,answer\n"a\nb",1\n"c\nd", \n', "line 4: answer is ' '"),  # its first line
        ("question,answer\n", "holds no problems"),
        ("", "holds no problems"),
    ],
)
def test_a_damaged_csv_file_is_refused_by_its_line(tmp_path, content, complaint):
    file = tmp_path / "set.csv"
    file.write_bytes(content.encode(errors="surrogateescape"))
    with pytest.raises(DatasetError) as caught:
        load_problems(str(file), limit=1)
    assert complaint in str(caught.value)
    assert str(file) in str(caught.value)


def test_a_json_file_holds_a_list_or_lines(tmp_path):
    file = tmp_path / "set.json"
    file.write_text('{"problem": "1?", "answer": "1"}\n{"problem": "2?", "answer": "2"}\n')
    assert [problem.answer for problem in load_problems(str(file))] == ["1", "2"]
    for content, complaint in (
        ('\ufeff\n[{"problem": "1?"}, 5]', "row 2 must hold a JSON object."),
        ('[{"problem": "1?"}', "cannot be read: it is not JSON"),
        ("[]", "holds no problems"),
    ):
        file.write_text(content)
        with pytest.raises(DatasetError, match=complaint):
            load_problems(str(file))


@needs_pyarrow
def test_a_parquet_row_is_named_and_a_level_may_have_gaps(table):
    rows = [{"problem": f"{n}?", "answer": n, "level": 1 if n else None} for n in range(3)]
    problems = load_problems(table(".parquet", rows))
    assert [problem.level for problem in problems] == [None, 1, 1]
    assert [problem.answer for problem in problems] == ["0", "1", "2"]
    assert problems[0].id == "set:1"
    with pytest.raises(DatasetError, match="row 2: problem is None"):
        load_problems(table(".parquet", [ROWS[0] | MAPPED, {"problem": None}]))


@needs_pyarrow
def test_a_file_that_is_no_parquet_and_one_cut_short_are_refused(table, tmp_path):
    whole = table(".parquet")
    for content in (b"", b"PAR1", (tmp_path / "set.parquet").read_bytes()[:-7]):
        (tmp_path / "set.parquet").write_bytes(content)
        with pytest.raises(DatasetError, match=r"set\.parquet, after row 0: it cannot be read: "):
            load_problems(whole)


def test_without_pyarrow_a_parquet_file_says_what_to_install(tmp_path, monkeypatch):
    file = tmp_path / "set.parquet"
    file.write_bytes(b"PAR1")
    real = builtins.__import__

    def without(name, *rest):
        if name == "pyarrow":
            raise ImportError("No module named 'pyarrow'")
        return real(name, *rest)

    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(DatasetError, match="cannot be used: No module named 'pyarrow'") as caught:
        load_problems(str(file))
    assert "pip install 'pyarrow" in caught.value.hint


@given(st.dictionaries(st.sampled_from(sorted(MAPPED)), st.text("ab ,+-", min_size=1)))
def test_columns_are_written_as_one_text_or_several(columns):
    parts = [f"{role}={column}" for role, column in columns.items()]
    assert parse_columns(parts) == columns
    assert parse_columns([",".join(parts)] * bool(columns)) == columns
    assert parse_columns(["answer=x=y"]) == {"answer": "x=y"}


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("question", "'question' names no column"),
        ("problem=", "'problem=' names no column"),
        ("question=problem", "Columns hold problem, answer, id, level or choices, not 'question'"),
        ("problem=a,problem=b", "The column of problem is given twice"),
    ],
)
def test_what_names_no_column_is_refused(text, complaint):
    with pytest.raises(DatasetError, match=complaint):
        parse_columns([text])


@pytest.mark.parametrize("dataset", ["demo", "math-500"])
def test_a_dataset_that_knows_its_columns_refuses_others(dataset):
    for options in ({"columns": MAPPED}, {"answers": "number"}):
        with pytest.raises(DatasetError, match="knows its columns and answers"):
            load_problems(dataset, **options)
    with pytest.raises(DatasetError, match="not as 'roman'"):
        load_problems(dataset, answers="roman")
