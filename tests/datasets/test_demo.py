"""The demo problems: right answers, small numbers, levels, determinism, a clean split."""

from __future__ import annotations

import random
import re
from fractions import Fraction
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import Tokenizer

from tts.datasets import chains, demo
from tts.datasets.demo import DEMO
from tts.problem import Problem

CHECKPOINTS = Path(__file__).resolve().parents[2] / "engines" / "checkpoints"

seeds = st.integers(min_value=0, max_value=2**32)
operation_counts = st.sampled_from(sorted(n for counts in chains.LEVELS.values() for n in counts))


@st.composite
def demo_chains(draw: st.DrawFn) -> chains.Chain:
    return DEMO.sample_chain(random.Random(draw(seeds)), draw(operation_counts))


def evaluate_expression(text: str) -> Fraction:
    """Evaluate ``a + b * (c - d)`` exactly; shares no code with the generator."""
    tokens = re.findall(r"\d+|[-+*/()]", text)
    assert "".join(tokens) == text.replace(" ", "")

    def total(at: int) -> tuple[Fraction, int]:
        value, at = product(at)
        while at < len(tokens) and tokens[at] in "+-":
            sign = 1 if tokens[at] == "+" else -1
            term, at = product(at + 1)
            value += sign * term
        return value, at

    def product(at: int) -> tuple[Fraction, int]:
        value, at = atom(at)
        while at < len(tokens) and tokens[at] in "*/":
            op = tokens[at]
            factor, at = atom(at + 1)
            value = value * factor if op == "*" else value / factor
        return value, at

    def atom(at: int) -> tuple[Fraction, int]:
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


def evaluate_question(question: str) -> Fraction:
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


@given(demo_chains(), st.sampled_from(chains.SURFACES))
def test_every_wording_says_the_chain(chain: chains.Chain, surface: chains.Surface) -> None:
    question = chains.render_question(chain, surface, "Mia", "apples")
    assert evaluate_question(question) == chain.answer


@given(seeds)
def test_answers_are_right_and_problems_held_out(seed: int) -> None:
    for problem in demo.demo_problems(10, seed):
        assert evaluate_question(problem.question) == int(problem.answer)


@given(demo_chains())
def test_values_stay_small(chain: chains.Chain) -> None:
    for value in (*chain.values(), *(operand for _, operand in chain.ops)):
        assert DEMO.lowest <= value <= DEMO.highest


@given(demo_chains())
def test_levels_follow_operation_counts(chain: chains.Chain) -> None:
    assert len(chain.ops) in chains.LEVELS[demo.problem_of(chain).level]


def test_levels_are_cycled() -> None:
    problems = demo.demo_problems(23, seed=1, levels=(1, 3, 5))
    assert [p.level for p in problems] == ([1, 3, 5] * 8)[:23]


@pytest.mark.parametrize("operations", [0, 1, 11])
def test_no_level_for_other_operation_counts(operations: int) -> None:
    with pytest.raises(ValueError, match="no level"):
        chains.level_of(operations)


def test_deterministic_and_a_prefix() -> None:
    assert demo.demo_problems(40, seed=3) == demo.demo_problems(60, seed=3)[:40]
    assert demo.demo_problems(40, seed=3) != demo.demo_problems(40, seed=4)


def test_known_problem() -> None:
    """The problems of a seed are part of the interface: results are compared across versions."""
    chain = chains.Chain(37, (("+", 58), ("-", 20)))
    problem = demo.problem_of(chain)
    assert chain.key == "37+58-20"
    assert problem.answer == "75"
    assert re.fullmatch(r"demo-[0-9a-f]{16}", problem.id)


def test_no_duplicates() -> None:
    problems = demo.demo_problems(600, seed=5)
    assert len({p.id for p in problems}) == len({p.question for p in problems}) == 600


def test_a_problem_has_one_identity_whatever_the_seed() -> None:
    by_id: dict[str, Problem] = {}
    for seed in range(6):
        for problem in demo.demo_problems(300, seed, levels=(1,)):
            assert by_id.setdefault(problem.id, problem) == problem


@given(seeds)
def test_problems_are_held_out(seed: int) -> None:
    assert all(DEMO.is_held_out(c.key) for c in DEMO.held_out_chains(5, seed))


def test_about_a_tenth_is_held_out() -> None:
    rng = random.Random(0)
    held = sum(DEMO.is_held_out(DEMO.sample_chain(rng, 5).key) for _ in range(5000))
    assert 400 < held < 600


def test_all_wordings_occur() -> None:
    openings = {p.question.split()[0] for p in demo.demo_problems(300, seed=0)}
    assert openings == {"Compute", "Start", *chains.NAMES}


def test_parentheses_only_where_needed() -> None:
    chain = chains.Chain(37, (("+", 58), ("*", 4), ("-", 96), ("/", 2)))
    text = chains.render_question(chain, "expression", "", "")
    assert text == "Compute ((37 + 58) * 4 - 96) / 2."


def test_bad_arguments() -> None:
    assert demo.demo_problems(0, seed=0, levels=()) == []
    with pytest.raises(ValueError, match="negative"):
        demo.demo_problems(-1, seed=0)
    with pytest.raises(ValueError, match="unknown levels"):
        demo.demo_problems(1, seed=0, levels=(1, 6))
    with pytest.raises(ValueError, match="empty"):
        demo.demo_problems(1, seed=0, levels=())
    with pytest.raises(ValueError, match="not a whole number"):
        chains.apply("/", 7, 2)


def solution(chain: chains.Chain) -> list[str]:
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
def tokenizer() -> Tokenizer:
    return Tokenizer.from_file(str(CHECKPOINTS / "demo-generator" / "tokenizer.json"))


def encode(tokenizer: Tokenizer, text: str) -> list[int]:
    return list(tokenizer.encode(text, add_special_tokens=False).ids)


def test_the_pair_shares_its_tokenizer() -> None:
    for name in ("tokenizer.json", "tokenizer_config.json"):
        one, two = (CHECKPOINTS / f"demo-{m}" / name for m in ("generator", "verifier"))
        assert one.read_bytes() == two.read_bytes()


@pytest.mark.parametrize("text", ["\n\n", "+", "-", " ", "7", "ки", "<|eot_id|>", "<|assistant|>"])
def test_single_tokens(tokenizer: Tokenizer, text: str) -> None:
    assert len(encode(tokenizer, text)) == 1


def test_only_one_token_holds_the_delimiter(tokenizer: Tokenizer) -> None:
    holding = [i for i in range(tokenizer.get_vocab_size()) if "\n\n" in tokenizer.decode([i])]
    assert holding == encode(tokenizer, "\n\n")


@given(demo_chains())
def test_texts_encode_alike_in_one_go_and_in_pieces(
    tokenizer: Tokenizer, chain: chains.Chain
) -> None:
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
def test_any_text_encodes(tokenizer: Tokenizer, text: str) -> None:
    assert tokenizer.decode(encode(tokenizer, text), skip_special_tokens=False) == text


@given(demo_chains())
def test_dialogues_fit(tokenizer: Tokenizer, chain: chains.Chain) -> None:
    """Each step costs its tokens and five more: <eot>, <assistant>, +, <eot>, <user>."""
    question = encode(tokenizer, DEMO.question_of(chain))
    steps = [encode(tokenizer, step) for step in solution(chain)]
    assert len(question) + 5 <= 80
    assert sum(map(len, steps)) + len(steps) <= 160
    assert len(question) + 3 + sum(map(len, steps)) + 5 * len(steps) <= 512


@pytest.mark.parametrize("model", ["generator", "verifier"])
def test_checkpoints_are_small(model: str) -> None:
    files = list((CHECKPOINTS / f"demo-{model}").iterdir())
    assert sum(file.stat().st_size for file in files) < 20e6
