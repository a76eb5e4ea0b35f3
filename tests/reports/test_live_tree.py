"""The live tree: equal siblings on one line, and what grows now on a screen that is too low."""

import io
from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console
from tests.endpoints.scripted import ScriptedGenerator, ScriptedVerifier

from tts.build.tokenizer import Tokenizer
from tts.problem import Problem
from tts.reports.live_tree import LiveTree, folded, newest, print_answer
from tts.search import Fate, Stop, Thought, Tree
from tts.session import RunProgress, Session, Step

PATHS = st.lists(st.integers(0, 2), min_size=1, max_size=5).map(tuple)


def tree_of(texts):
    """A tree with these texts by path; those above them have their path as text."""
    tree = Tree()
    for path, text in texts:
        for depth in range(1, len(path) + 1):
            above = path[:depth]
            if above not in tree:
                tree.add(above).thought = Thought(
                    (1,), text if above == path else f"{above}", Stop.STEP
                )
    return tree


TREES = st.lists(st.tuples(PATHS, st.sampled_from(("a", "b  ", "b"))), max_size=30).map(tree_of)


@given(TREES)
def test_every_thought_is_in_the_branch_of_its_text(tree):
    root = folded(tree)
    branches = list(root.below())
    found = [node for branch in branches for node in branch.nodes]
    assert sorted(node.path for node in found) == sorted(node.path for node in tree)
    for branch in branches:
        assert {" ".join(node.thought.text.split()) for node in branch.nodes} == {branch.text}
        assert len({child.text for child in branch.children.values()}) == len(branch.children)
        if branch.parent is not root:
            above = {node.path for node in branch.parent.nodes}
            assert {node.path[:-1] for node in branch.nodes} <= above


@given(TREES, st.integers(1, 20))
def test_the_newest_thought_is_shown_and_never_more_lines_than_there_are(tree, lines):
    root = folded(tree)
    shown = newest(root, lines)
    assert len(shown) <= lines
    if len(tree):
        last = list(tree)[-1]
        assert any(last in branch.nodes for branch in shown)
    for place, branch in enumerate(shown):
        if branch.parent is not root and branch.parent in shown:
            assert shown.index(branch.parent) < place
    if len(list(root.below())) <= lines:
        assert shown == list(root.below())


def drawn(tree, height, width=80):
    out = Console(
        file=io.StringIO(), force_terminal=True, width=width, height=height, color_system=None
    )
    live = LiveTree("Compute " + "1 + " * 50 + "1.", out)
    live.step(Step(Problem("p", "q"), (0,), "", None, tree))
    with out.capture() as capture:
        out.print(live._draw())
    lines = capture.get().splitlines()
    assert len(lines) < height
    assert max(map(len, lines)) <= width
    return lines


def test_equal_siblings_are_one_line_with_their_number_and_score():
    tree = tree_of(
        [((0,), "7 + 7 = 14"), ((1,), "7 + 7 = 14\n\n"), ((2,), "other"), ((1, 0), "below")]
    )
    tree[(1,)].score = 0.5
    tree[(0,)].fate = tree[(1,)].fate = Fate.EXPANDED
    tree[(2,)].fate = Fate.PRUNED
    text = "\n".join(drawn(tree, 24))
    assert text.count("7 + 7 = 14") == 1
    assert "0.5000 2 x 7 + 7 = 14" in text
    assert "below" in text
    assert "other" not in text
    assert "4 steps, 1 pruned" in text
    assert "not drawn" not in text


def test_a_low_screen_follows_what_grows():
    tree = tree_of([((i,), f"first {i}") for i in range(30)] + [((3, 0), "now")])
    lines = drawn(tree, 12)
    assert any("now" in line for line in lines)
    assert any("first 3" in line for line in lines)
    assert "22 not drawn" in lines[-1]


def test_a_chain_deeper_than_the_screen_shows_its_end():
    lines = drawn(tree_of([((0,) * depth, f"step {depth}") for depth in range(1, 41)]), 12, 120)
    assert any("step 40" in line for line in lines)
    assert not any(line.split("...")[-1].strip() == "step 1" for line in lines)


def test_the_tree_is_erased_at_the_end_and_the_screen_cleared_when_it_changes_its_size():
    out = Console(file=io.StringIO(), force_terminal=True, width=80, height=24)
    live = LiveTree("Compute 1.", out)
    live.began(RunProgress(1), "solve")
    live.changed()
    assert "\x1b[2J" not in out.file.getvalue()
    out.width = 50
    live.changed()
    live.ended()
    assert out.file.getvalue().count("\x1b[2J") == 1
    assert out.file.getvalue().endswith("\x1b[?25h\r\x1b[1A\x1b[2K")  # and the cursor is back


def test_the_best_chain_with_the_answer_and_a_doubt_are_printed(
    tiny_deployment, tokenizer_folder, capsys
):
    tokenizer = Tokenizer(tokenizer_folder)
    words = [tokenizer.encode(word) for word in ("1", "22", r"\boxed{4}")]
    given = {
        "generator": ScriptedGenerator(words, tokenizer.encode("\n\n")),
        "verifier": ScriptedVerifier(),
    }
    with Session.open(tiny_deployment, **given) as session:
        result = session.solve("Compute 2 + 2.", n=4, seed=1)
    first, *others = result.completions
    assert len(others) == 3
    outvoted = replace(first, answer="5", steps=("2 + 2 = 5",), step_scores=(0.99,))
    result = replace(result, completions=(outvoted, *others))
    print_answer(result, "It may be wrong.")
    *chain, rules, doubt, last = capsys.readouterr().out.splitlines()
    steps = [" ".join(text.split()) for text in result.chosen.steps if text]
    assert result.chosen in others
    assert [line.split(" ", 1)[1] for line in chain] == steps
    assert rules.startswith("by rule: ")
    assert rules.endswith(f"; the strategy uses {result.vote}")
    assert doubt == "It may be wrong."
    assert last == f"answer: {result.answer}"
