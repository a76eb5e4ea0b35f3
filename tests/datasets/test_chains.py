"""Tasks of chains other than the demo's."""

import random

from hypothesis import given
from hypothesis import strategies as st

from tts.datasets.chains import Chain, ChainTask, expression
from tts.datasets.demo import DEMO, demo_problems

TASK = ChainTask("tts-remainders", ("+", "-", "*", "%"), lowest=2, highest=60)


@given(st.integers(0, 2**32), st.integers(2, 10))
def test_chains_have_the_operations_and_values_of_their_task(seed, operations):
    chain = TASK.sample_chain(random.Random(seed), operations)
    assert {op for op, _ in chain.ops} <= set(TASK.ops)
    assert all(TASK.lowest <= value <= TASK.highest for value in chain.values())
    assert eval(expression(chain)) == chain.answer, "Python reads % as the question means it"


def test_a_remainder_is_worded():
    chain = Chain(37, (("+", 21), ("%", 11)))
    assert chain.key == "37+21%11"
    assert expression(chain) == "(37 + 21) % 11"
    assert chain.answer == 3


def test_held_out_problems_of_tasks_are_drawn_apart():
    assert [problem.answer for problem in demo_problems(20, 3)] == [
        str(chain.answer) for chain in DEMO.held_out_chains(20, 3)
    ]
    assert TASK.held_out_chains(20, 3) == TASK.held_out_chains(30, 3)[:20]
    assert TASK.held_out_chains(20, 3) != DEMO.held_out_chains(20, 3)
