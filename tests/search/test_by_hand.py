"""Trees beside hand-made ones, and the search in one file."""

import asyncio
from collections import Counter
from functools import partial
from typing import get_args

import pytest
from examples.beam_search_in_one_file import beam_search, on_endpoints
from hypothesis import given, settings
from tests.amounts import amount
from tests.driver.scripted_run import PROBLEMS, Run
from tests.search.driving import answer, beam_configs, build, drive, worlds

from tts.build.tokenizer import Tokenizer
from tts.prompting import Context
from tts.scheduling import ScheduleName
from tts.search import (
    BeamSearchConfig,
    DvtsConfig,
    Expand,
    Fate,
    Generated,
    MctsConfig,
    ParticleConfig,
    RebaseConfig,
    SampleSearchConfig,
    Score,
    Scored,
    Stop,
    Thought,
    node_seed,
)


def name_of(path):
    return ".".join(map(str, path))


def half(path):
    """A seed that makes u = 0.5, and tells every other path from its neighbours."""
    return 2**62 if path[:1] == (-1,) else sum(path) + 100 * len(path)


class Script:
    """A world of steps: `name text score / ...`; `_` is a space, and `$` ends a chain's last step.

    What a step does not have is a KeyError when it is asked for.
    """

    def __init__(self, steps):
        rows = [row.split() for row in steps.split("/")]
        self.texts = {name: text.replace("_", " ") for name, text, *_ in rows}
        self.scores = {name: float(score) for name, _, *scores in rows for score in scores}

    def thought(self, path):
        text = self.texts[name_of(path)]
        return Thought((), text.removesuffix("$"), Stop.END if text.endswith("$") else Stop.STEP)

    def answer(self, work):
        path = work.node
        if not isinstance(work, Expand):
            return Scored(path, self.scores[name_of(path)])
        assert work.seed == half(path)
        thoughts = [self.thought(path)]
        while work.whole and thoughts[-1].stop is Stop.STEP:
            path = (*path, 0)
            thoughts.append(self.thought(path))
        return Generated(work.node, tuple(thoughts))


def check(config, steps, completions, **fates):
    """A search asks for every step of a script, and for what it needs of their scores.

    `completions` are names with scores, best first; `fates` are the names of all nodes, in order.
    Returns what was asked for.
    """
    world, search = Script(steps), config.new_search(half, None)
    asked, waiting = [], []
    while not search.done:
        waiting += search.ask()
        asked.append(waiting.pop(0))
        search.tell(world.answer(asked[-1]))
    found = search.result().completions
    assert [(name_of(done.node), done.score and round(done.score, 9)) for done in found] == [
        (name, float(score[0]) if score else None)
        for name, *score in map(str.split, completions.split("/"))
    ]
    for done in found:
        chain = (done.node[:depth] for depth in range(1, len(done.node) + 1))
        assert done.text == "".join(world.thought(path).text for path in chain)
    nodes = {name_of(node.path): str(node.fate) for node in search.tree}
    assert nodes.keys() == world.texts.keys()
    expected = {name: str(Fate[fate.upper()]) for fate in fates for name in fates[fate].split()}
    assert nodes == expected
    return asked


def test_sample_ranks_chains_by_path_score_then_path():
    asked = check(
        SampleSearchConfig(n=3, agg_strategy="mean"),
        "0 a 0.4 / 0.0 b$ 0.6 / 1 c$ 0.9 / 2 d 0.5 / 2.0 e$ 0.5",
        "1 0.9 / 0.0 0.5 / 2.0 0.5",
        completed="0.0 1 2.0",
        expanded="0 2",
    )
    generated = [call for call in asked if isinstance(call, Expand)]
    assert [(call.node, call.whole) for call in generated] == [((i,), True) for i in range(3)]


@pytest.mark.parametrize(
    ("agg_strategy", "steps", "score"),
    [
        ("last", "0 _ / 0.0 a / 0.0.0 b / 0.0.0.0 $ 0.4", 0.4),
        ("min", "0 _ 0.1 / 0.0 a 0.5 / 0.0.0 b 0.5 / 0.0.0.0 $ 0.4", 0.5),
        ("prod", "0 _ 0.1 / 0.0 a 0.5 / 0.0.0 b 0.5 / 0.0.0.0 $ 0.4", 0.25),
        ("mean", "0 _ 0.1 / 0.0 a 0.5 / 0.0.0 b 0.5 / 0.0.0.0 $ 0.4", 0.5),
    ],
)
def test_a_step_without_text_adds_nothing(agg_strategy, steps, score):
    # White space at the start and the end, whose scores are those of what stands before it.
    config = SampleSearchConfig(n=1, agg_strategy=agg_strategy)
    check(config, steps, f"0.0.0.0 {score}", completed="0.0.0.0", expanded="0 0.0 0.0.0")


@pytest.mark.parametrize(
    ("scored", "steps", "completions"),
    [
        (True, "0 a / 0.0 b$ 0.25 / 1 c$ 0.25004", "0.0 0.25 / 1 0.25"),
        (False, "0 a / 0.0 b$ / 1 c$", "0.0 / 1"),
    ],
)
def test_sample_scores_the_last_step_or_nothing(scored, steps, completions):
    config = SampleSearchConfig(n=2, scored=scored)
    check(config, steps, completions, completed="0.0 1", expanded="0")


BEAMS = (
    "0 a$ 0.2 / 1 b 0.9 / 2 c 0.6 / 3 d$ 0.5 / 1.0 e$ 0.3 / 1.1 f$ 0.8 / 2.0 g$ 0.8 / 2.1 h 0.99"
)


def test_beam_search_takes_the_first_n_completed():
    # Iteration 1: 3 and 0 are completed; 1 and 2 stay, and are just the two beams. Iteration 2:
    # 1.1, 2.0 (a tie: the smaller path first) and 1.0 are completed, in this order, which is one
    # too many; 2.1 is the best of all and comes too late.
    check(
        BeamSearchConfig(n=4, beam_width=2),
        BEAMS,
        "1.1 0.8 / 2.0 0.8 / 3 0.5 / 0 0.2",
        completed="0 1.1 2.0 3",
        expanded="1 2",
        pruned="2.1",
        surplus="1.0",
    )


def test_beam_search_sorts_completed():
    # The same, but the search goes on below 2.1, which alone gets all 4 candidates; they end with
    # iteration 3.
    check(
        BeamSearchConfig(n=4, beam_width=2, sort_completed=True, num_iterations=3),
        f"{BEAMS} / 2.1.0 i 0.1 / 2.1.1 j 0.7 / 2.1.2 k 0.1 / 2.1.3 l 0.1",
        "1.1 0.8 / 2.0 0.8 / 2.1.1 0.7 / 3 0.5",
        completed="1.1 2.0 2.1.1 3",
        expanded="1 2 2.1",
        surplus="0 1.0 2.1.0 2.1.2 2.1.3",
    )


def test_beam_search_deals_candidates_in_turn():
    # K = 2 beams share n = 3 candidates: rank 0 (which is 1) gets the first and the third.
    check(
        BeamSearchConfig(n=3, beam_width=1, num_iterations=2),
        "0 a 0.5 / 1 b 0.9 / 2 c$ 0.1 / 0.0 d 0.3 / 1.0 e 0.2 / 1.1 f 0.1",
        "0.0 0.3 / 1.0 0.2 / 2 0.1",
        completed="0.0 1.0 2",
        expanded="0 1",
        surplus="1.1",
    )


def test_beam_search_filters_duplicates():
    # 1 says what 0 says and ranks below it, so the second beam is 2; 3 has a text of its own but
    # ranks too low.
    check(
        BeamSearchConfig(n=4, beam_width=2, filter_duplicates=True),
        "0 a 0.9 / 1 a 0.8 / 2 b 0.7 / 3 c 0.6 / 0.0 $ 0 / 0.1 $ 0 / 2.0 $ 0 / 2.1 $ 0",
        "0.0 0 / 0.1 0 / 2.0 0 / 2.1 0",
        completed="0.0 0.1 2.0 2.1",
        expanded="0 2",
        pruned="1 3",
    )


def test_dvts_subtrees_end_each_in_its_own_way():
    # Subtree 0 chooses 1 and ends with iteration 2, in whole tails of which every step is scored:
    # 0.8 * 0.5 * 0.5 = 0.2 and 0.8 * 0.5 = 0.4. Subtree 1 chooses 2, which holds an answer; 3 comes
    # out with it, unfinished.
    check(
        DvtsConfig(n=4, beam_width=2, num_iterations=2, finish="eos", agg_strategy="prod"),
        "0 a 0.5 / 1 c 0.8 / 1.0 p 0.5 / 1.0.0 q$ 0.5 / 1.1 r$ 0.5 / 2 \\boxed{7} 0.9 / 3 s 0.3",
        "2 0.9 / 1.1 0.4 / 3 0.3 / 1.0.0 0.2",
        completed="1.0.0 1.1 2 3",
        expanded="1 1.0",
        pruned="0",
    )


def test_rebase_shares_out_the_budget():
    # 4 is completed, so R = 4. With T = 0.2, e^(s/T) is 90.02 for 0, 33.12 for 2, 2.72 for 1 and
    # 1.65 for 3, 127.50 in all. 0 gets ceil(4 * 90.02 / 127.50 = 2.82) = 3, which leaves 1;
    # 2 gets ceil(33.12 / 37.48 = 0.88) = 1, which leaves none.
    check(
        RebaseConfig(n=5, num_iterations=2),
        "0 a 0.9 / 1 b 0.2 / 2 c 0.7 / 3 d 0.1 / 4 e$ 0.99 / "
        "0.0 f 0.1 / 0.1 g 0.3 / 0.2 h$ 0.2 / 2.0 i 0.4",
        "4 0.99 / 2.0 0.4 / 0.1 0.3 / 0.2 0.2 / 0.0 0.1",
        completed="0.0 0.1 0.2 2.0 4",
        expanded="0 2",
        pruned="1 3",
    )


def test_particles_are_resampled_systematically():
    # Odds 4, 1/4, 1, 3 are weights of 8.25 in all: shares end at 0.485, 0.515, 0.636 and 1. With
    # u = 0.5 the points are 0.125, 0.375 (both particle 0), 0.625 (2) and 0.875 (3). The effective
    # sample size is 8.25^2 / 26.06 = 2.61, below 0.75 * 4. 0 has ended, so it stands there twice.
    check(
        ParticleConfig(n=4, num_iterations=2, ess_threshold=0.75),
        "0 a$ 0.8 / 1 b 0.2 / 2 c 0.5 / 3 d 0.75 / 2.0 e 0.9 / 3.0 f 0.1",
        "2.0 0.9 / 0 0.8 / 0 0.8 / 3.0 0.1",
        completed="0 2.0 3.0",
        expanded="2 3",
        pruned="1",
    )


def test_particle_weights_add_up_until_they_are_resampled():
    # Iteration 1: odds 1.5 and 1, effective 2.5^2 / 3.25 = 1.92: not below 0.9 * 2. Iteration 2:
    # odds 3 and 1 make the weights 4.5 and 1, effective 5.5^2 / 21.25 = 1.42; the first share ends
    # at 0.82 and holds both points, 0.25 and 0.75. (The odds of iteration 2 alone would end it at
    # 0.75, and 1.0 would be drawn.)
    check(
        ParticleConfig(n=2, num_iterations=3, ess_threshold=0.9),
        "0 a 0.6 / 1 b 0.5 / 0.0 c 0.75 / 1.0 d 0.5 / 0.0.0 e 0.5 / 0.0.1 f 0.5",
        "0.0.0 0.5 / 0.0.1 0.5",
        completed="0.0.0 0.0.1",
        expanded="0 0.0 1",
        pruned="1.0",
    )


def test_particles_that_were_resampled_weigh_the_same():
    # Iteration 1: odds 4 and 1, effective 25 / 17 = 1.47, below 0.9 * 2; both points, 0.25 and
    # 0.75, are within 0's share of 0.8. Iteration 2: odds 1.5 and 1, effective 1.92, so both stay.
    # (With the weights of iteration 1 they would be 6 and 1, and 0.0 be drawn twice.)
    check(
        ParticleConfig(n=2, num_iterations=3, ess_threshold=0.9),
        "0 a 0.8 / 1 b 0.5 / 0.0 c 0.6 / 0.1 d 0.5 / 0.0.0 e 0.5 / 0.1.0 f 0.5",
        "0.0.0 0.5 / 0.1.0 0.5",
        completed="0.0.0 0.1.0",
        expanded="0 0.0 0.1",
        pruned="1",
    )


def test_a_simulation_opens_a_child_where_it_promises_more_than_those_there():
    # Both children of the root are opened at once. Of the range, 0 has nothing and 1 all; with
    # simulation 1 under way 1 has a half, still more than 0, so both simulations stand at 1.
    check(
        MctsConfig(n=2, width=2, parallel=2, exploration=0.0),
        "0 a 0.2 / 1 b 0.9 / 1.0 5$ 0.8 / 1.1 7$ 0.1",
        "1.0 0.8 / 1.1 0.1",
        expanded="1",
        completed="1.0 1.1",
        pruned="0",
    )


def test_exploration_turns_a_simulation_to_what_was_visited_less():
    # Simulation 1 goes to 0. Then of 3 visits 2 went to 0, whose bound is 1/2 + 3 * sqrt(3) / 3
    # = 2.23, and 1 to 1, with 0 + 3 * sqrt(3) / 2 = 2.60.
    check(
        MctsConfig(n=2, width=2, parallel=2, exploration=3.0),
        "0 a 0.9 / 1 7$ 0.6 / 0.0 5$ 0.8",
        "0.0 0.8 / 1 0.6",
        expanded="0",
        completed="0.0 1",
    )


def test_a_simulation_under_way_counts_as_a_visit_of_the_least_value():
    # All three simulations open a child of the root. Simulation 1 goes to 0, which thereby falls
    # from 1 to 0.5, so that simulation 2 goes to 1, which has 0.6 and falls to 0.3; simulation 3
    # goes to 0.
    asked = check(
        MctsConfig(n=3, width=3, parallel=3, exploration=0.0),
        "0 a 0.9 / 1 b 0.7 / 2 c 0.4 / 0.0 5$ 0.9 / 0.1 5$ 0.8 / 1.0 7$ 0.7",
        "0.0 0.9 / 0.1 0.8 / 1.0 0.7",
        expanded="0 1",
        completed="0.0 0.1 1.0",
        pruned="2",
    )
    generated = [name_of(call.node) for call in asked if isinstance(call, Expand)]
    assert generated == ["0", "1", "2", "0.0", "0.1", "1.0"]


def test_a_node_whose_children_have_all_come_out_gets_further_ones():
    check(
        MctsConfig(n=3, width=1, parallel=1),
        "0 5$ 0.9 / 1 7$ 0.5 / 2 5$ 0.2",
        "0 0.9 / 1 0.5 / 2 0.2",
        completed="0 1 2",
    )


def plainly(config, world):
    """The tree of the one file, and what it asked for."""
    asked = []

    async def write(path, whole):
        asked.append(Expand(path, node_seed(7, "p", path), config.sampling, whole))
        return answer(asked[-1], world).thoughts

    async def judge(path):
        asked.append(Score(path))
        return answer(asked[-1], world).score

    return asyncio.run(beam_search(config, write, judge)), asked


def test_the_search_grows_the_plain_tree_and_asks_for_no_more():
    seen = set()

    @settings(max_examples=amount(200, 2000), deadline=None)
    @given(beam_configs, worlds)
    def compare(config, world):
        plain, expected = plainly(config, world)
        search = build(config)
        asked = drive(search, world)
        assert search.tree.digest() == plain.digest()
        for node in search.tree:
            if node.score is None and node.fate is Fate.PRUNED:
                seen.add("pruned without a score")
            else:
                assert node.score == plain.nodes[node.path].score
        done = search.result().completions
        assert [each.node for each in done] == plain.completions
        assert [each.score for each in done] == [plain.score(path) for path in plain.completions]
        assert [each.text for each in done] == [plain.text(path) for path in plain.completions]
        wanted = Counter(each for each in asked if isinstance(each, Expand))
        assert wanted == Counter(each for each in expected if isinstance(each, Expand))
        scored = Counter(each.node for each in asked if isinstance(each, Score))
        assert scored <= Counter(each.node for each in expected if isinstance(each, Score))
        seen.update(str(node.fate) for node in search.tree)

    compare()
    assert seen == {"expanded", "pruned", "completed", "surplus", "pruned without a score"}


@pytest.mark.parametrize("schedule", get_args(ScheduleName))
@pytest.mark.parametrize(
    "config",
    [
        BeamSearchConfig(n=8, beam_width=2, num_iterations=6),
        BeamSearchConfig(n=4, num_iterations=3, finish="eos", agg_strategy="prod"),
    ],
)
def test_a_run_on_two_engines_has_its_digests(tiny_deployment, tokenizer_folder, config, schedule):
    encode = Tokenizer(tokenizer_folder).encode
    words = [encode(word) for word in ("1", "22", "a", " + ")], encode("\n\n")
    run = Run(tiny_deployment, words, config, schedule).go()
    engines = run.generator, run.verifier
    for problem in PROBLEMS:
        context = Context.of(run.models, problem)
        asked = on_endpoints(config, partial(node_seed, 1, problem.id), context, engines)
        assert asyncio.run(beam_search(config, *asked)).digest() == run.digests[problem.id]
