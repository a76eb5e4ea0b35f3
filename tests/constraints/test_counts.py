"""Wide repetitions and long sequences as rules of a grammar."""

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from tts.constraints.regular import Choice, Ref, Repeat, Seq, literal
from tts.constraints.step_grammar import BLOCK, in_blocks


def counts(node, rules):
    """How many times a text of a node holds its letter: the least and the most, without gaps."""
    if isinstance(node, Ref):
        return counts(rules[node.name], rules)
    if isinstance(node, Repeat):
        low, high = counts(node.node, rules)
        return low * node.least, high * node.most
    if isinstance(node, Seq):
        parts = [counts(part, rules) for part in node.parts]
        return sum(low for low, _ in parts), sum(high for _, high in parts)
    if isinstance(node, Choice):
        options = sorted(counts(option, rules) for option in node.options)
        assert all(after[0] <= before[1] + 1 for before, after in pairwise(options))
        return options[0][0], options[-1][1]
    return 1, 1


@given(st.integers(0, 40), st.integers(0, 200))
def test_wide_repetitions_are_the_same_in_blocks(least, more):
    most = max(least + more, 1)
    rules = in_blocks({"root": Repeat(literal("a"), least, most)})
    assert counts(rules["root"], rules) == (least, most)
    assert (len(rules) > 1) == (most - least > BLOCK)


@given(st.integers(1, 4), st.integers(0, 1200))
def test_long_sequences_are_the_same_in_blocks(most, length):
    rules = in_blocks({"root": Seq((Repeat(literal("a"), 0, most),) * length)})
    assert counts(rules["root"], rules) == (0, most * length)
    assert (len(rules) > 1) == (length > BLOCK)
    assert all(len(rule.parts) <= BLOCK for rule in rules.values())
