import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tts.grading import extract_answer, extract_gsm8k_answer


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        (r"so \boxed{5}.", "5"),
        (r"\boxed{ \frac{1}{2} }", r"\frac{1}{2}"),
        (r"\fbox{5}", "5"),
        (r"\boxed {5}", "5"),
        (r"\boxed{1} then \boxed{2}", "2"),
        (r"\boxed{\text{it is } \boxed{5}}", "5"),
        (r"\boxed{\{1,2\}}", r"\{1,2\}"),
        (r"\boxed{\left\{ x \right.}", r"\left\{ x \right."),
        (r"\boxed{\begin{pmatrix}1\\2\end{pmatrix}}", r"\begin{pmatrix}1\\2\end{pmatrix}"),
        (r"a \\{ \boxed{5}", "5"),
        ("{{ \\boxed{5}", "5"),
        ("}} \\boxed{5}}}", "5"),
        ("\\boxed{\n5\n}", "5"),
        (r"$\boxed 5$.", "5"),
        (r"it is \boxed -3.5.", "-3.5"),
        (r"\boxed A", "A"),
        (r"\boxed{7} and \boxed{8", "7"),
        (r"\boxed{7} write it as \boxed{}", "7"),
        ("\0\\boxed{5}\ud800", "5"),
        (r"\boxed{5}\boxed 6", "6"),
        (r"\boxed 6 \boxed{5}", "5"),
    ],
)
def test_the_last_complete_box_is_the_answer(text, answer):
    assert extract_answer(text) == answer


@pytest.mark.parametrize(
    "text",
    [
        "",
        "the answer is 5",
        r"\boxed",
        r"\boxed{",
        r"\boxed{5",
        r"\boxed{ }",
        r"\boxedfoo{5}",
        r"\\boxed",
        "put it in \\boxed format",
        "\\",
    ],
)
def test_without_a_complete_box_there_is_no_answer(text):
    assert extract_answer(text) is None


def balanced():
    atom = st.sampled_from(
        ["1", "x", "+", " ", r"\frac", r"\{", r"\}", r"\\", "$", "\n", "é", "\0"]
    )
    return st.recursive(
        st.lists(atom, max_size=4).map("".join),
        lambda inner: st.lists(st.one_of(inner, inner.map("{{{}}}".format)), max_size=4).map(
            "".join
        ),
        max_leaves=12,
    )


@settings(deadline=None)
@given(
    before=st.text("{}a \n$"),
    content=balanced().filter(str.strip),
    after=st.text("{}a \n$"),
    box=st.sampled_from([r"\boxed", r"\fbox", r"\boxed "]),
)
def test_balanced_content_survives_any_surroundings(before, content, after, box):
    assert extract_answer(f"{before}{box}{{{content}}}{after}") == content.strip()


@settings(deadline=None)
@given(
    st.lists(
        st.sampled_from([r"\boxed", r"\fbox", "{", "}", "\\", " ", "5", "a", "\0", "\ud800", "\n"]),
        max_size=40,
    ).map("".join)
)
def test_any_text_is_harmless_and_an_answer_is_part_of_it(text):
    answer = extract_answer(text)
    assert answer is None or (answer in text and answer == answer.strip() != "")


@pytest.mark.parametrize(
    "text",
    [
        "{" * 1_000_000,
        "}" * 1_000_000,
        "\\" * 1_000_000,
        r"\boxed" * 200_000,
        r"\boxed{" * 200_000,
        r"\boxed{" * 200_000 + "}" * 200_000,
        r"\boxed{}" * 200_000,
        r"\boxed 1" * 200_000,
        (r"\boxed" + " " * 1000) * 1000,
        r"\boxed{" + " " * 1_000_000,
        r"\boxed 1" + "." * 1_000_000,
    ],
    ids=lambda text: f"{text[:10]}...{len(text)}",
)
def test_long_hostile_texts_finish(text):
    """With quadratic work, a million characters would take hours."""
    extract_answer(text)


def test_the_answers_of_math_solutions(shared_lines):
    for problem in shared_lines("math500_dev.jsonl"):
        assert extract_answer(problem["solution"]) == problem["answer"]


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        ("so\n#### 18", "18"),
        ("#### 70,000\n", "70000"),
        ("#### 1\n#### 2", "2"),
        ("####", None),
        ("18", None),
    ],
)
def test_gsm8k_answers_follow_the_mark(text, answer):
    assert extract_gsm8k_answer(text) == answer


def test_every_gsm8k_reference_is_an_integer(shared_lines):
    for problem in shared_lines("gsm8k_test.jsonl"):
        assert re.fullmatch(r"-?\d+", extract_gsm8k_answer(problem["answer"]) or "")
