"""The demo problems: right answers, small numbers, levels, determinism, a clean split."""

import random
import re
from fractions import Fraction
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import Tokenizer

from tts.datasets import demo
from tts.datasets.demo import DEMO
from tts.problem import Problem

CHECKPOINTS = Path(__file__).resolve().parents[2] / "engines" / "checkpoints"

seeds = st.integers(min_value=0, max_value=2**32)
operation_counts = st.sampled_from(sorted(n for counts in demo.LEVELS.values() for n in counts))


@st.composite
def demo_chains(draw):
    return DEMO.sample_chain(random.Random(draw(seeds)), draw(operation_counts))


def evaluate_expression(text):
    """Evaluate ``a + b * (c - d)`` exactly; shares no code with the generator."""
    tokens = re.findall(r"\d+|[-+*/()]", text)
    assert "".join(tokens) == text.replace(" ", "")

    def total(at):
        value, at = product(at)
        while at < len(tokens) and tokens[at] in "+-":
            sign = 1 if tokens[at] == "+" else -1
            term, at = product(at + 1)
            value += sign * term
        return value, at

    def product(at):
        value, at = atom(at)
        while at < len(tokens) and tokens[at] in "*/":
            op = tokens[at]
            factor, at = atom(at + 1)
            value = value * factor if op == "*" else value / factor
        return value, at

    def atom(at):
        if tokens[at] == "(":
            value, at = total(at + 1)
            assert tokens[at] == ")"
            return value, at + 1
        return Fraction(tokens[at]), at + 1

    value, end = total(0)
    assert end == len(tokens)
    return value


SENTENCES = {
    r"Add (\d+)": "+",
    r"Subtract (\d+)": "-",
    r"Multiply by (\d+)": "*",
    r"Divide by (\d+)": "/",
    r"Then (\d+) more arrive": "+",
    r"Then (\d+) are given away": "-",
    r"Then there are (\d+) times as many": "*",
    r"Then only one of (\d+) equal parts is left": "/",
}


def evaluate_question(question):
    """The answer read from the wording alone."""
    if question.startswith("Compute "):
        return evaluate_expression(question.removeprefix("Compute ").removesuffix("."))
    first, *sentences = re.split(r"[.?] ?", question)
    text = re.findall(r"\d+", first)[0]
    for sentence in sentences[:-2]:  # the last ones: the question, and nothing
        ((op, number),) = [
            (op, m[1])
            for pattern, op in SENTENCES.items()
            if (m := re.fullmatch(pattern, sentence))
        ]
        text = f"({text} {op} {number})"
    return evaluate_expression(text)


@given(demo_chains(), st.sampled_from(demo.SURFACES), st.data())
def test_every_wording_says_the_chain_and_is_read_back(chain, surface, data):
    name, thing = (data.draw(st.sampled_from(each)) for each in (demo.NAMES, demo.THINGS))
    question = demo.render_question(chain, surface, name, thing)
    assert evaluate_question(question) == chain.answer
    assert demo.read_question(question) == chain
    assert demo.why_outside(question) is None


@given(st.text())
def test_any_text_is_read_or_refused(text):
    assert (demo.why_outside(text) or ".").endswith((".", "?"))


@pytest.mark.parametrize(
    ("question", "why"),
    [
        ("What is the capital of France?", "only knows chains"),
        ("Compute 12 + 30", "only knows chains"),
        ("Compute (12 + 30).", "only knows chains"),
        ("Compute " + "9" * 5000 + " + 3 - 4.", "only knows chains"),
        ("Compute 12 + 30.", "this one has 1"),
        ("Compute 2" + " + 3" * 11 + ".", "this one has 11"),
        ("Compute ((37 + 58) * 4 - 96) / 2.", "95 * 4 is 380 on the way"),
        ("Compute 98 + 2 - 50.", "98 + 2 is 100 on the way"),
        ("Compute 3 - 2 + 50.", "3 - 2 is 1 on the way"),
        ("Compute 120 + 3 - 5.", "120 is in the question"),
        ("Compute 12 / 5 + 3.", "12 / 5 is no whole number"),
        ("Compute 12 / 0 + 3.", "0 is in the question"),
    ],
)
def test_what_is_outside_is_named(question, why):
    assert why in demo.why_outside(question)


def test_the_examples_are_inside():
    assert all(demo.why_outside(question) is None for question in demo.EXAMPLES)
    ops = (("+", 30), ("/", 6), ("+", 8), ("*", 4), ("-", 11), ("/", 7))
    assert demo.read_question(demo.EXAMPLE) == demo.Chain(12, ops)


@given(seeds)
def test_answers_are_right_and_problems_held_out(seed):
    held_out = DEMO.held_out_chains(10, seed)
    for problem, chain in zip(demo.demo_problems(10, seed), held_out, strict=True):
        assert evaluate_question(problem.question) == int(problem.answer) == chain.answer
        assert DEMO.is_held_out(chain.key)


@given(demo_chains())
def test_values_stay_small_and_levels_follow_operation_counts(chain):
    for value in (*chain.values(), *(operand for _, operand in chain.ops)):
        assert DEMO.lowest <= value <= DEMO.highest
    assert len(chain.ops) in demo.LEVELS[demo.problem_of(chain).level]


def test_levels_are_cycled():
    assert [p.level for p in demo.demo_problems(23, seed=1)] == ([1, 2, 3, 4, 5] * 5)[:23]


def test_deterministic_and_a_prefix():
    assert demo.demo_problems(40, seed=3) == demo.demo_problems(60, seed=3)[:40]
    assert demo.demo_problems(40, seed=3) != demo.demo_problems(40, seed=4)


REMAINDERS = demo.ChainTask("tts-remainders", ("+", "-", "*", "%"), lowest=2, highest=60)


@given(seeds, st.integers(2, 10))
def test_chains_of_another_task_have_its_operations_and_values(seed, operations):
    chain = REMAINDERS.sample_chain(random.Random(seed), operations)
    assert {op for op, _ in chain.ops} <= set(REMAINDERS.ops)
    assert all(REMAINDERS.lowest <= value <= REMAINDERS.highest for value in chain.values())
    assert eval(demo.expression(chain)) == chain.answer, "Python reads % as the question means it"


def test_held_out_chains_of_tasks_are_drawn_apart():
    assert REMAINDERS.held_out_chains(20, 3) == REMAINDERS.held_out_chains(30, 3)[:20]
    assert REMAINDERS.held_out_chains(20, 3) != DEMO.held_out_chains(20, 3)


def test_a_chain_has_a_key_and_parentheses_only_where_they_are_needed():
    chain = demo.Chain(37, (("+", 58), ("*", 4), ("-", 96), ("/", 2)))
    assert (chain.key, demo.problem_of(chain).answer) == ("37+58*4-96/2", "142")
    text = demo.render_question(chain, "expression", "", "")
    assert text == "Compute ((37 + 58) * 4 - 96) / 2."


def test_the_problems_of_a_seed_are_what_they_were():
    """Results are compared across versions."""
    first, second = demo.demo_problems(2, seed=0)
    assert (first.id, first.level, first.answer) == ("demo-059ed453c7b28113", 1, "4")
    assert first.question == "Start with 17. Subtract 15. Multiply by 2. What is the result?"
    assert (second.id, second.question) == (
        "demo-fe9a4197c6043c86",
        "Compute (96 + 2) / 49 + 95 - 69.",
    )


def test_no_duplicates():
    problems = demo.demo_problems(600, seed=5)
    assert len({p.id for p in problems}) == len({p.question for p in problems}) == 600


def test_a_problem_has_one_identity_whatever_the_seed():
    by_id: dict[str, Problem] = {}
    for seed in range(6):
        for problem in demo.demo_problems(600, seed):
            assert by_id.setdefault(problem.id, problem) == problem


def test_about_a_tenth_is_held_out():
    rng = random.Random(0)
    held = sum(DEMO.is_held_out(DEMO.sample_chain(rng, 5).key) for _ in range(5000))
    assert 400 < held < 600


def test_all_wordings_occur():
    openings = {p.question.split()[0] for p in demo.demo_problems(300, seed=0)}
    assert openings == {"Compute", "Start", *demo.NAMES}


def test_bad_arguments():
    for operations in (0, 1, 11):
        with pytest.raises(ValueError, match="no level"):
            demo.level_of(operations)
    with pytest.raises(ValueError, match="not a whole number"):
        demo.apply("/", 7, 2)


def solution(chain):
    """Steps as the pair writes them."""
    values = chain.values()
    steps = [
        f"## Step {i}: {a} {op} {b} = {c}"
        for i, (a, (op, b), c) in enumerate(zip(values, chain.ops, values[1:], strict=False), 1)
    ]
    return [
        *steps,
        f"Therefore, the final answer is: $\\boxed{{{chain.answer}}}$. I hope it is correct.",
    ]


@pytest.fixture(scope="module")
def tokenizer():
    return Tokenizer.from_file(str(CHECKPOINTS / "demo-generator" / "tokenizer.json"))


def encode(tokenizer, text):
    return list(tokenizer.encode(text, add_special_tokens=False).ids)


def test_the_pair_shares_its_tokenizer():
    for name in ("tokenizer.json", "tokenizer_config.json"):
        one, two = (CHECKPOINTS / f"demo-{m}" / name for m in ("generator", "verifier"))
        assert one.read_bytes() == two.read_bytes()


@pytest.mark.parametrize("text", ["\n\n", "+", "-", " ", "7", "ки", "<|eot_id|>", "<|assistant|>"])
def test_single_tokens(tokenizer, text):
    assert len(encode(tokenizer, text)) == 1


def test_only_one_token_holds_the_delimiter(tokenizer):
    holding = [i for i in range(tokenizer.get_vocab_size()) if "\n\n" in tokenizer.decode([i])]
    assert holding == encode(tokenizer, "\n\n")


@given(demo_chains())
def test_texts_encode_alike_in_one_go_and_in_pieces(tokenizer, chain: demo.Chain):
    question = DEMO.question_of(chain)
    steps = solution(chain)
    space, delimiter = encode(tokenizer, " "), encode(tokenizer, "\n\n")
    for step in (steps[0], steps[-1]):
        whole = encode(tokenizer, f"{question} {step}")
        assert whole == encode(tokenizer, question) + space + encode(tokenizer, step)
    pieces = encode(tokenizer, steps[0])
    for step in steps[1:]:
        pieces += delimiter + encode(tokenizer, step)
    assert pieces == encode(tokenizer, "\n\n".join(steps))
    assert tokenizer.decode(pieces) == "\n\n".join(steps)


@given(st.text(st.characters(exclude_categories=["Cs"]), max_size=40))
def test_any_text_encodes(tokenizer, text):
    assert tokenizer.decode(encode(tokenizer, text), skip_special_tokens=False) == text


@given(demo_chains())
def test_dialogues_fit(tokenizer, chain):
    """Each step costs its tokens and five more: <eot>, <assistant>, +, <eot>, <user>."""
    question = encode(tokenizer, DEMO.question_of(chain))
    steps = [encode(tokenizer, step) for step in solution(chain)]
    assert len(question) + 5 <= 80
    assert sum(map(len, steps)) + len(steps) <= 160
    assert len(question) + 3 + sum(map(len, steps)) + 5 * len(steps) <= 512


@pytest.mark.parametrize("model", ["generator", "verifier"])
def test_checkpoints_are_small(model):
    files = list((CHECKPOINTS / f"demo-{model}").iterdir())
    assert sum(file.stat().st_size for file in files) < 20e6
