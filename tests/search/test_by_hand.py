"""Searches worked by hand."""

import pytest

from tts.search import (
    AdaptiveVoteConfig,
    AnswerForm,
    BeamSearchConfig,
    DvtsConfig,
    Expand,
    Generated,
    MctsConfig,
    NodePath,
    ParticleConfig,
    RebaseConfig,
    SampleSearchConfig,
    Scored,
    Search,
    SearchConfig,
    Stop,
    Thought,
    Work,
)

CONFIGS: dict[str, type[SearchConfig]] = {
    "sample": SampleSearchConfig,
    "adaptive_vote": AdaptiveVoteConfig,
    "beam_search": BeamSearchConfig,
    "dvts": DvtsConfig,
    "rebase": RebaseConfig,
    "particle_filtering": ParticleConfig,
    "mcts": MctsConfig,
}


def name_of(path: NodePath) -> str:
    return ".".join(map(str, path))


class Script:
    """A world of named steps; `$` ends a step that ends its chain. Anything else is a KeyError."""

    def __init__(self, steps: dict[str, str], scores: dict[str, float] | None = None) -> None:
        self.steps = steps
        self.scores = scores or {}

    def thought(self, path: NodePath) -> Thought:
        text = self.steps[name_of(path)]
        return Thought((), text.removesuffix("$"), Stop.END if text.endswith("$") else Stop.STEP)

    def answer(self, work: Work) -> Generated | Scored:
        path = work.node
        if not isinstance(work, Expand):
            return Scored(path, self.scores[name_of(path)])
        assert work.seed == half(path)
        thoughts = [self.thought(path)]
        while work.whole and thoughts[-1].stop is Stop.STEP:
            path = (*path, 0)
            thoughts.append(self.thought(path))
        return Generated(work.node, tuple(thoughts))

    def answer_form(self, text: str) -> AnswerForm | None:
        """The last character: a digit is exact, a letter is not, a dot is no answer."""
        return AnswerForm(text[-1], text[-1].isdigit()) if text[-1] != "." else None


def half(path: NodePath) -> int:
    """A seed that makes u = 0.5, and tells every other path from its neighbours."""
    return 2**62 if path[:1] == (-1,) else sum(path) + 100 * len(path)


class Outcome:
    """What a search came to, and what it asked for."""

    def __init__(self, search: Search, asked: list[Work]) -> None:
        self.nodes = {node.path: node for node in search.tree or ()}
        result = search.result()
        assert result is not None
        self.completions = result.completions
        self.calls = asked


def play(strategy: str, world: Script, **params: object) -> Outcome:
    """The outcome; every step of the script must have been asked for."""
    search = CONFIGS[strategy].model_validate(params).new_search(half, world.answer_form)
    asked: list[Work] = []
    waiting: list[Work] = []
    while not search.done:
        waiting += search.ask()
        asked.append(waiting.pop(0))
        search.tell(world.answer(asked[-1]))
    outcome = Outcome(search, asked)
    assert {name_of(path) for path in outcome.nodes} == set(world.steps)
    return outcome


def fates(outcome: Outcome) -> dict[str, str]:
    """Names of the nodes by fate."""
    names: dict[str, str] = {}
    for path in sorted(outcome.nodes):
        fate = str(outcome.nodes[path].fate)
        names[fate] = f"{names[fate]} {name_of(path)}" if fate in names else name_of(path)
    return names


def out(outcome: Outcome) -> list[tuple[str, str, float | None]]:
    return [
        (name_of(completion.node), completion.text, completion.score and round(completion.score, 9))
        for completion in outcome.completions
    ]


def test_sample_ranks_chains_by_path_score_then_path() -> None:
    world = Script(
        {"0": "a", "0.0": "b$", "1": "c$", "2": "d", "2.0": "e$"},
        {"0": 0.4, "0.0": 0.6, "1": 0.9, "2": 0.5, "2.0": 0.5},
    )
    outcome = play("sample", world, n=3, agg_strategy="mean")
    assert out(outcome) == [("1", "c", 0.9), ("0.0", "ab", 0.5), ("2.0", "de", 0.5)]
    assert fates(outcome) == {"completed": "0.0 1 2.0", "expanded": "0 2"}
    generated = [call for call in outcome.calls if isinstance(call, Expand)]
    assert [(call.node, call.whole) for call in generated] == [((i,), True) for i in range(3)]


@pytest.mark.parametrize(
    ("agg_strategy", "score"), [("last", 0.4), ("min", 0.5), ("prod", 0.25), ("mean", 0.5)]
)
def test_a_step_without_text_adds_nothing(agg_strategy: str, score: float) -> None:
    # White space at the start and the end, whose scores are those of what stands before it.
    world = Script(
        {"0": " ", "0.0": "a", "0.0.0": "b", "0.0.0.0": "$"},
        {"0.0.0.0": 0.4}
        if agg_strategy == "last"
        else {"0": 0.1, "0.0": 0.5, "0.0.0": 0.5, "0.0.0.0": 0.4},
    )
    outcome = play("sample", world, n=1, agg_strategy=agg_strategy)
    assert out(outcome) == [("0.0.0.0", " ab", score)]


def test_sample_scores_the_last_step_or_nothing() -> None:
    steps = {"0": "a", "0.0": "b$", "1": "c$"}
    world = Script(steps, {"0.0": 0.25, "1": 0.25004})
    assert out(play("sample", world, n=2)) == [("0.0", "ab", 0.25), ("1", "c", 0.25)]
    assert out(play("sample", Script(steps), n=2, scored=False)) == [
        ("0.0", "ab", None),
        ("1", "c", None),
    ]


BEAM_STEPS = {"0": "a$", "1": "b", "2": "c", "3": "d$", "1.0": "e$", "1.1": "f$", "2.0": "g$"}
BEAM_SCORES = {"0": 0.2, "1": 0.9, "2": 0.6, "3": 0.5, "1.0": 0.3, "1.1": 0.8, "2.0": 0.8}


def test_beam_search_takes_the_first_n_completed() -> None:
    # Iteration 1: 3 and 0 are completed; 1 and 2 stay, and are just the two beams. Iteration 2:
    # 1.1, 2.0 (a tie: the smaller path first) and 1.0 are completed, in this order, which is one
    # too many; 2.1 is the best of all and comes too late.
    world = Script({**BEAM_STEPS, "2.1": "h"}, {**BEAM_SCORES, "2.1": 0.99})
    outcome = play("beam_search", world, n=4, beam_width=2)
    assert out(outcome) == [
        ("1.1", "bf", 0.8),
        ("2.0", "cg", 0.8),
        ("3", "d", 0.5),
        ("0", "a", 0.2),
    ]
    assert fates(outcome) == {
        "completed": "0 1.1 2.0 3",
        "expanded": "1 2",
        "pruned": "2.1",
        "surplus": "1.0",
    }


def test_beam_search_sorts_completed() -> None:
    # The same, but the search goes on below 2.1, which alone gets all 4 candidates; they end with
    # iteration 3.
    late = {"2.1": "h", "2.1.0": "i", "2.1.1": "j", "2.1.2": "k", "2.1.3": "l"}
    scores = {"2.1": 0.99, "2.1.0": 0.1, "2.1.1": 0.7, "2.1.2": 0.1, "2.1.3": 0.1}
    world = Script({**BEAM_STEPS, **late}, {**BEAM_SCORES, **scores})
    outcome = play("beam_search", world, n=4, beam_width=2, sort_completed=True, num_iterations=3)
    assert [name for name, _, _ in out(outcome)] == ["1.1", "2.0", "2.1.1", "3"]
    assert fates(outcome) == {
        "completed": "1.1 2.0 2.1.1 3",
        "expanded": "1 2 2.1",
        "surplus": "0 1.0 2.1.0 2.1.2 2.1.3",
    }


def test_beam_search_deals_candidates_in_turn() -> None:
    # K = 2 beams share n = 3 candidates: rank 0 (which is 1) gets the first and the third.
    world = Script(
        {"0": "a", "1": "b", "2": "c$", "0.0": "d", "1.0": "e", "1.1": "f"},
        {"0": 0.5, "1": 0.9, "2": 0.1, "0.0": 0.3, "1.0": 0.2, "1.1": 0.1},
    )
    outcome = play("beam_search", world, n=3, beam_width=1, num_iterations=2)
    assert [name for name, _, _ in out(outcome)] == ["0.0", "1.0", "2"]
    assert fates(outcome) == {"completed": "0.0 1.0 2", "expanded": "0 1", "surplus": "1.1"}


def test_beam_search_filters_duplicates() -> None:
    # 1 says what 0 says and ranks below it, so the second beam is 2; 3 has a text of its own but
    # ranks too low.
    world = Script(
        {"0": "a", "1": "a", "2": "b", "3": "c", "0.0": "$", "0.1": "$", "2.0": "$", "2.1": "$"},
        {"0": 0.9, "1": 0.8, "2": 0.7, "3": 0.6, "0.0": 0, "0.1": 0, "2.0": 0, "2.1": 0},
    )
    outcome = play("beam_search", world, n=4, beam_width=2, filter_duplicates=True)
    assert fates(outcome) == {
        "completed": "0.0 0.1 2.0 2.1",
        "expanded": "0 2",
        "pruned": "1 3",
    }


def test_dvts_subtrees_end_each_in_its_own_way() -> None:
    # Subtree 0 chooses 1 and ends with iteration 2, in whole tails of which every step is scored:
    # 0.8 * 0.5 * 0.5 = 0.2 and 0.8 * 0.5 = 0.4. Subtree 1 chooses 2, which holds an answer; 3 comes
    # out with it, unfinished.
    world = Script(
        {
            **{"0": "a", "1": "c", "1.0": "p", "1.0.0": "q$", "1.1": "r$"},
            **{"2": "\\boxed{7}", "3": "s"},
        },
        {"0": 0.5, "1": 0.8, "1.0": 0.5, "1.0.0": 0.5, "1.1": 0.5, "2": 0.9, "3": 0.3},
    )
    params = {"num_iterations": 2, "finish": "eos", "agg_strategy": "prod"}
    outcome = play("dvts", world, n=4, beam_width=2, **params)
    assert out(outcome) == [
        ("2", "\\boxed{7}", 0.9),
        ("1.1", "cr", 0.4),
        ("3", "s", 0.3),
        ("1.0.0", "cpq", 0.2),
    ]
    assert fates(outcome) == {
        "completed": "1.0.0 1.1 2 3",
        "expanded": "1 1.0",
        "pruned": "0",
    }


def test_rebase_shares_out_the_budget() -> None:
    # 4 is completed, so R = 4. With T = 0.2, e^(s/T) is 90.02 for 0, 33.12 for 2, 2.72 for 1 and
    # 1.65 for 3, 127.50 in all. 0 gets ceil(4 * 90.02 / 127.50 = 2.82) = 3, which leaves 1;
    # 2 gets ceil(33.12 / 37.48 = 0.88) = 1, which leaves none.
    world = Script(
        {
            **{"0": "a", "1": "b", "2": "c", "3": "d", "4": "e$"},
            **{"0.0": "f", "0.1": "g", "0.2": "h$", "2.0": "i"},
        },
        {
            **{"0": 0.9, "1": 0.2, "2": 0.7, "3": 0.1, "4": 0.99},
            **{"0.0": 0.1, "0.1": 0.3, "0.2": 0.2, "2.0": 0.4},
        },
    )
    outcome = play("rebase", world, n=5, num_iterations=2)
    assert [name for name, _, _ in out(outcome)] == ["4", "2.0", "0.1", "0.2", "0.0"]
    assert fates(outcome) == {
        "completed": "0.0 0.1 0.2 2.0 4",
        "expanded": "0 2",
        "pruned": "1 3",
    }


def test_particles_are_resampled_systematically() -> None:
    # Odds 4, 1/4, 1, 3 are weights of 8.25 in all: shares end at 0.485, 0.515, 0.636 and 1. With
    # u = 0.5 the points are 0.125, 0.375 (both particle 0), 0.625 (2) and 0.875 (3). The effective
    # sample size is 8.25^2 / 26.06 = 2.61, below 0.75 * 4. 0 has ended, so it stands there twice.
    world = Script(
        {"0": "a$", "1": "b", "2": "c", "3": "d", "2.0": "e", "3.0": "f"},
        {"0": 0.8, "1": 0.2, "2": 0.5, "3": 0.75, "2.0": 0.9, "3.0": 0.1},
    )
    outcome = play("particle_filtering", world, n=4, num_iterations=2, ess_threshold=0.75)
    assert [name for name, _, _ in out(outcome)] == ["2.0", "0", "0", "3.0"]
    assert fates(outcome) == {"completed": "0 2.0 3.0", "expanded": "2 3", "pruned": "1"}


def test_particle_weights_add_up_until_they_are_resampled() -> None:
    # Iteration 1: odds 1.5 and 1, effective 2.5^2 / 3.25 = 1.92: not below 0.9 * 2. Iteration 2:
    # odds 3 and 1 make the weights 4.5 and 1, effective 5.5^2 / 21.25 = 1.42; the first share ends
    # at 0.82 and holds both points, 0.25 and 0.75. (The odds of iteration 2 alone would end it at
    # 0.75, and 1.0 would be drawn.)
    world = Script(
        {"0": "a", "1": "b", "0.0": "c", "1.0": "d", "0.0.0": "e", "0.0.1": "f"},
        {"0": 0.6, "1": 0.5, "0.0": 0.75, "1.0": 0.5, "0.0.0": 0.5, "0.0.1": 0.5},
    )
    outcome = play("particle_filtering", world, n=2, num_iterations=3, ess_threshold=0.9)
    assert fates(outcome) == {
        "completed": "0.0.0 0.0.1",
        "expanded": "0 0.0 1",
        "pruned": "1.0",
    }


def test_particles_that_were_resampled_weigh_the_same() -> None:
    # Iteration 1: odds 4 and 1, effective 25 / 17 = 1.47, below 0.9 * 2; both points, 0.25 and
    # 0.75, are within 0's share of 0.8. Iteration 2: odds 1.5 and 1, effective 1.92, so both stay.
    # (With the weights of iteration 1 they would be 6 and 1, and 0.0 be drawn twice.)
    world = Script(
        {"0": "a", "1": "b", "0.0": "c", "0.1": "d", "0.0.0": "e", "0.1.0": "f"},
        {"0": 0.8, "1": 0.5, "0.0": 0.6, "0.1": 0.5, "0.0.0": 0.5, "0.1.0": 0.5},
    )
    outcome = play("particle_filtering", world, n=2, num_iterations=3, ess_threshold=0.9)
    assert fates(outcome) == {
        "completed": "0.0.0 0.1.0",
        "expanded": "0 0.0 0.1",
        "pruned": "1",
    }


def test_a_simulation_opens_a_child_where_it_promises_more_than_those_there() -> None:
    # The root's first child scores 0.2 where new ones promise (0.5 + 0.2) / (1 + 1) = 0.35, so it
    # gets another; below 1 a new one promises 0.9 * 0.54. The chain's 0.8 counts for 1, too, whose
    # mean is then 0.85, but 1.0 is spent and 1.1 is opened: it scores less than 1.2 promises, of
    # which width allows none.
    world = Script(
        {"0": "a", "1": "b", "1.0": "5$", "1.1": "7$"},
        {"0": 0.2, "1": 0.9, "1.0": 0.8, "1.1": 0.1},
    )
    outcome = play("mcts", world, n=2, width=2, parallel=1, exploration=0.0)
    assert out(outcome) == [("1.0", "b5", 0.8), ("1.1", "b7", 0.1)]
    assert fates(outcome) == {"expanded": "1", "completed": "1.0 1.1", "pruned": "0"}


def test_exploration_turns_a_simulation_to_what_was_visited_less() -> None:
    # Simulation 1 ends at 0.0. Then of 3 visits 2 went to 0, which is worth 0.85 + 3 * sqrt(3) / 3
    # = 2.58, and 1 to 1, worth 0.6 + 3 * sqrt(3) / 2 = 3.20.
    world = Script(
        {"0": "a", "1": "7$", "0.0": "5$"},
        {"0": 0.9, "1": 0.6, "0.0": 0.8},
    )
    outcome = play("mcts", world, n=2, width=2, parallel=1, exploration=3.0)
    assert out(outcome) == [("0.0", "a5", 0.8), ("1", "7", 0.6)]
    assert fates(outcome) == {"expanded": "0", "completed": "0.0 1"}


def test_a_simulation_under_way_counts_as_a_visit_of_value_0() -> None:
    # Both simulations open a child of the root. Simulation 1 goes to 0, which thereby falls to
    # 0.45, so that simulation 2 goes to 1.
    world = Script(
        {"0": "a", "1": "b", "0.0": "5$", "1.0": "7$"},
        {"0": 0.9, "1": 0.6, "0.0": 0.8, "1.0": 0.7},
    )
    outcome = play("mcts", world, n=2, width=2, parallel=2, exploration=0.0)
    assert out(outcome) == [("0.0", "a5", 0.8), ("1.0", "b7", 0.7)]
    assert [name_of(call.node) for call in outcome.calls if isinstance(call, Expand)] == [
        *("0", "1"),
        *("0.0", "1.0"),
    ]


def test_a_node_whose_children_have_all_come_out_gets_further_ones() -> None:
    world = Script({"0": "5$", "1": "7$", "2": "5$"}, {"0": 0.9, "1": 0.5, "2": 0.2})
    outcome = play("mcts", world, n=3, width=1, parallel=1)
    assert fates(outcome) == {"completed": "0 1 2"}
