"""A search that stops early gives the answer that it would have given."""

from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.amounts import amount
from tests.search.driving import (
    ab_mcts_configs,
    beam_configs,
    build,
    drive,
    dvts_configs,
    mcts_configs,
    rebase_configs,
    sample_configs,
    worlds,
)

from tts.grading.votes import answer_form
from tts.search import (
    AnswerForm,
    BeamSearch,
    BeamSearchConfig,
    Generated,
    SampleSearchConfig,
    Stop,
    Thought,
)

voting_configs = st.one_of(
    dvts_configs, sample_configs, beam_configs, rebase_configs, mcts_configs, ab_mcts_configs
)
"""Of the strategies that may stop early: all but particle filtering, whose completed particles may
still be drawn again or lost."""


@settings(max_examples=amount(75, 300), deadline=None)
@given(voting_configs, worlds)
def test_an_early_stop_cannot_change_the_vote(config, world):
    """Votes by the forms of the answers, as the search compares them while it runs."""
    if getattr(config, "sort_completed", False):
        return
    full, early = (
        build(config.model_copy(update={"early_stop": on, "agree": None})) for on in (False, True)
    )
    drive(full, world)
    drive(early, world)
    full_vote, lead = _vote(full)
    if len(early.result().completions) < config.n:
        assert _vote(early)[0] == full_vote
        assert lead > 0


def _vote(search):
    weights = Counter()
    for done in search.result().completions:
        if form := answer_form(done.text):
            weights[form] += 1.0 if done.score is None else done.score
    ranked = weights.most_common(2) + [(None, 0.0)] * 2
    return ranked[0][0], ranked[0][1] - ranked[1][1]


def test_an_early_stop_saves_chains_that_cannot_matter():
    config = SampleSearchConfig(n=9, scored=False, early_stop=True)
    search = build(config)
    search.ask()
    same = (Thought((1,), r"\boxed{5}", Stop.END),)
    for chain in (8, 7, 4, 3, 2, 1):
        search.tell(Generated((chain,), same))
    assert not search.done, "chain 0 is missing: its answer must not depend on who came first"
    search.tell(Generated((0,), same))
    assert search.done
    assert [done.node for done in search.result().completions] == [(i,) for i in range(5)]
    assert len(search.tree) == 5


@settings(max_examples=amount(75, 300), deadline=None)
@given(voting_configs, worlds)
def test_enough_equal_answers_end_a_search_and_no_fewer_do(config, world):
    if getattr(config, "sort_completed", False):
        return
    for agree in (1, 2, 3):
        only = {"early_stop": False, "agree": agree}
        search = build(config.model_copy(update=only))
        drive(search, world)
        completions = search.result().completions
        forms = Counter(answer_form(done.text) for done in completions)
        del forms[None]
        most = max(forms.values(), default=0)
        assert most >= agree or len(completions) == config.n
        if isinstance(config, SampleSearchConfig):  # one more would be beyond the stop
            assert most <= agree


def test_chains_that_agree_end_a_search_in_the_order_of_their_paths():
    search = build(SampleSearchConfig(n=6, scored=False, agree=2))
    search.ask()
    texts = {5: r"\boxed{7}", 3: r"\boxed{5}", 1: r"\boxed{5}", 2: r"\boxed{7}", 0: "no answer"}
    for chain, text in texts.items():
        assert not search.done
        search.tell(Generated((chain,), (Thought((1,), text, Stop.END),)))
    assert [done.node for done in search.result().completions] == [(0,), (1,), (2,), (3,)]


def test_forms_that_might_be_equal_do_not_stop_a_search():
    r"""2 and \frac{4}{2} may be one answer: together they could beat 5."""
    config = SampleSearchConfig(n=8, scored=False, early_stop=True)
    texts = [r"\boxed{5}"] * 4 + [r"\boxed{\frac{4}{2}}", r"\boxed{2}"]
    search = build(config)
    search.ask()
    for chain, text in enumerate(texts):
        search.tell(Generated((chain,), (Thought((1,), text, Stop.END),)))
    assert not search.done
    search.tell(Generated((6,), (Thought((1,), r"\boxed{5}", Stop.END),)))
    assert search.done


def test_early_stop_without_a_reader_of_answers_is_a_mistake():
    with pytest.raises(ValueError, match="answer_of"):
        BeamSearch(BeamSearchConfig(early_stop=True), lambda _: 0)
    assert AnswerForm("5", True) != AnswerForm("5", False)
