import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from math_verify import ExprExtractionConfig, LatexExtractionConfig, parse, verify

from tts.grading import boxed_answer, extract_answer, extract_gsm8k_answer
from tts.grading.extract import stated_answer


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


UNBOXED = (
    *("", "\\", r"\boxed", r"\boxed{", r"\boxed{5", r"\boxed{ }", r"\boxedfoo{5}", r"\\boxed"),
    *("{5}", "put it in \\boxed format"),
)


@pytest.mark.parametrize("text", UNBOXED)
def test_without_a_complete_box_there_is_no_answer(text):
    assert extract_answer(text) is None


PARTS = ["1", "x", "+", " ", r"\frac", r"\{", r"\}", r"\\", "$", "\n", "é", "\0"]
BALANCED = st.recursive(
    st.lists(st.sampled_from(PARTS), max_size=4).map("".join),
    lambda inner: st.lists(inner | inner.map("{{{}}}".format), max_size=4).map("".join),
    max_leaves=12,
)


@settings(deadline=None)
@given(
    before=st.text("{}a \n$"),
    content=BALANCED.filter(str.strip),
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


HOSTILE = (
    *(each * 1_000_000 for each in ("{", "}", "\\", "\n")),
    *(each * 200_000 for each in (r"\boxed", r"\boxed{", r"\boxed{}", r"\boxed 1")),
    r"\boxed{" * 200_000 + "}" * 200_000,
    (r"\boxed" + " " * 1000) * 1000,
    r"\boxed{" + " " * 1_000_000,
    r"\boxed 1" + "." * 1_000_000,
    "final answer is $" * 60_000,
    "final answer" + " " * 1_000_000,
    "final answer:" + "*" * 1_000_000,
    "final answer is " + "$a$, " * 200_000,
    *("answer:\n" * 100_000, "# " * 500_000, "<answer>" * 100_000, "<answer>" + " " * 1_000_000),
    *("答案" * 300_000, "答案是：" * 200_000, "respuesta" + "*" * 1_000_000),
    *("####" + " " * 1_000_000, "#### " + "1." * 500_000 + "x"),
)


@pytest.mark.parametrize("text", HOSTILE, ids=lambda text: f"{text[:10]}...{len(text)}")
def test_long_hostile_texts_finish(text):
    """With quadratic work, a million characters would take hours."""
    extract_answer(text)


def test_the_answers_of_math_solutions(shared_lines):
    for problem in shared_lines("math500_dev.jsonl"):
        assert extract_answer(problem["solution"]) == problem["answer"]


STATED = [
    ("Final Answer: The final answer is $x$. I hope it is correct.", "x"),
    ("The final answer is 7.78.", "7.78"),
    ("the final answer is: $$\n5\n$$\nDone.", "5"),
    ("The final answer is \\(x+1\\).", "x+1"),
    ("The final answer is\n\\[\n\\frac{1}{2}\n\\]", r"\frac{1}{2}"),
    ("The final answer is $12$ and $13$. I hope it is correct.", "$12$ and $13$"),
    ("The final answer is $5$, which is odd.", "5"),
    ("The final answer is $5$ square units.", "$5$ square units"),
    ("The final answer is 5. The final answer is 6.", "6"),
    ("The final answer is 5.\n\nAnswer: 6", "5"),
    ("The final answer is **5**.", "5"),
    ("**Answer:** 5", "5"),
    ("**Answer: $18.90**", "$18.90"),
    ("Answer: x = 5", "x = 5"),
    ("**Final Answer**\n\n$-2$", "-2"),
    ("# Answer\n\n8, 3, 1", "8, 3, 1"),
    ("so it is 18. The answer is: 18", "18"),
    ("The final answer is (D) 12 km.", "(D) 12 km"),
    ("so\n#### 5", "5"),
    ("#### $1,000.", "$1,000"),
    ("3 + 14 = 17. The answer is 17.", "17"),
    ("So the answer is $-\\frac{1}{2}$.", r"-\frac{1}{2}"),
    ("The answer is **42**", "42"),
    ("First, the answer is 5. Then it doubles: the answer is 10.", "10"),
    ("The answer is 5, I think.\nAnswer: 6", "6"),
    ("The answer is (C).", "C"),
    ("Final Answer: (B)", "B"),
    ("Final Answer: The largest $n$ is 34.", "34"),
    (r"Final Answer: The area is $\frac{1}{2}$.", r"\frac{1}{2}"),
    ("<answer>6</answer> <answer>\n$7$\n</answer>", "7"),
    ("The answer is 5. <answer>The answer is 7.</answer>", "7"),
    ("La respuesta final es 7.", "7"),
    ("La respuesta correcta es $7$.", "7"),
    ("La respuesta es: 7", "7"),
    ("**Respuesta:** 7", "7"),
    ("Die Antwort ist 7.", "7"),
    ("Die Antwort lautet $7$.", "7"),
    ("Die endgültige Antwort lautet: 7", "7"),
    ("**Antwort:** 7", "7"),
    ("La réponse est donc $7$.", "7"),
    ("La réponse finale est 7.", "7"),
    ("Réponse : 7", "7"),
    ("答案是7，因为 3+4=7。", "7"),
    ("所以答案为 $\\frac{1}{2}$。", r"\frac{1}{2}"),
    ("**答案：** 7", "7"),
    ("答案是：7", "7"),
    ("最终答案是 12个。", "12个"),
    ("最终答案是（1，2）。", "（1，2）"),
]


@pytest.mark.parametrize(("text", "answer"), STATED)
def test_without_a_box_the_answer_is_what_the_text_announces_as_such(text, answer):
    assert extract_answer(text) == stated_answer(text) == answer
    assert boxed_answer(text) is None
    assert extract_answer(rf"\boxed{{7}} {text}") == "7"


@pytest.mark.parametrize(
    "text",
    [
        "The answer is larger than 5.",
        "The answer is yes.",
        "The answer is 5 or $x$.",
        "So the answer is $p = 8$ and $m = 8$.",
        "so x = 5",
        "The final answer is greater than $5$.",
        "The final answer is $5$ less than $7$.",
        "The final answer is $5$ less than that.",
        "The final answer is 5 or $x$.",
        "The final answer is to be put into a box.",
        "Final Answer: Jane started growing Sphere 3 hours ago.",
        r"The final answer is $\boxed{5",
        r"The final answer is $\boxed{}$.",
        "The final answer is $7.78 for $5.",
        "The final answer is",
        "Answer:\n",
        "My answer: 5",
        "#### Step 3",
        "#### 3 more steps",
        "####",
        "The final answer is $" + "x" * 600 + "$.",
        "The answer is (a) 5.",
        "Final Answer: The largest $n$ is not 34.",
        "Final Answer: The area is greater than 34.",
        "<answer>7",
        "<answer>your answer</answer>",
        "Write <answer>...</answer>.",
        "La respuesta final es mayor que 7.",
        "La respuesta es sí.",
        "Die Antwort ist größer als 7.",
        "La réponse est supérieure à 7.",
        "最终答案是大于7的数。",
        "答案大于7。",
    ],
)
def test_a_sentence_that_only_speaks_of_an_answer_states_none(text):
    assert extract_answer(text) is None


def read_by_math_verify(text):
    """What its own extraction finds where words announce an answer, whatever is in a box."""
    latex = LatexExtractionConfig(try_extract_without_anchor=False, boxed_match_priority=-1)
    words = ExprExtractionConfig(try_extract_without_anchor=False)
    return parse(text, [latex, words], parsing_timeout=None)


@pytest.mark.parametrize(
    ("text", "answer"),
    [each for each in STATED if "nswer is" in each[0] and not re.search(r"\*|\([CD]\)", each[0])],
)
def test_math_verify_finds_the_same(text, answer):
    found = read_by_math_verify(text)
    assert verify(found, parse(answer if "$" in answer else f"${answer}$", parsing_timeout=None))


def test_answers_that_real_completions_state_without_their_boxes(shared_lines, grader):
    """A completion says the same in words as in its box, or states nothing in words."""
    stated, otherwise = 0, []
    for trace in shared_lines("traces_dev.jsonl"):
        text, boxed = trace["text"], boxed_answer(trace["text"])
        if boxed is None:
            continue
        unboxed = text.replace(rf"\boxed{{{boxed}}}", boxed)
        if "boxed" in unboxed or (answer := stated_answer(unboxed)) is None:
            continue
        stated += 1
        if not grader.equal_sync(answer, boxed).equal:
            otherwise.append(trace["trace_id"])
    assert stated > 100
    assert otherwise == ["t01545"]  # whose box rounds what its words say


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
