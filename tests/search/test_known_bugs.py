"""Bugs that other implementations of PRM-guided search shipped, each with a test that catches it.

Most are from the notes of an independent port of FastTTS (github.com/davidshiao55/TTC); the others
from search-and-learn and its issue tracker.
"""

import numpy as np
import pytest
from rich.console import Console
from tests.driver.scripted_run import PROBLEMS, Run
from tests.endpoints.scripted import ScriptedVerifier
from tests.runs.runs import row_of

from tts.build.spec import VerifierSpec
from tts.build.tokenizer import Tokenizer
from tts.build.verifiers.dialogue import verifier_dialogue
from tts.endpoints.base import VerifierResult
from tts.reports.terminal import tables
from tts.search import (
    BeamSearch,
    BeamSearchConfig,
    DvtsConfig,
    Expand,
    Generated,
    RebaseConfig,
    SampleSearchConfig,
    Score,
    Scored,
    Stop,
    Thought,
    Tree,
    node_seed,
)
from tts.search.thought import aggregate


@pytest.fixture(scope="module")
def tokenizer(tokenizer_folder):
    return Tokenizer(tokenizer_folder)


@pytest.fixture(scope="module")
def words(tokenizer):
    return [tokenizer.encode(word) for word in ("1", "22", "a", " + ")], tokenizer.encode("\n\n")


def beam(**parameters):
    config = BeamSearchConfig(**parameters)
    return BeamSearch(config, lambda node: node_seed(1, "p", node))


def step(text, stop=Stop.STEP):
    return (Thought(tuple(text.encode()), text, stop),)


def grow(search, text="x\n\n", score=0.5, stop=Stop.STEP):
    """Answer everything asked for, the same each time."""
    for work in search.ask():
        if isinstance(work, Expand):
            search.tell(Generated(work.node, step(text, stop)))
        else:
            search.tell(Scored(work.node, score))


def test_an_end_of_sequence_several_steps_ahead_does_not_end_the_beam():
    """FastTTS port: an engine that ran on past the delimiter to the end ended the chain there."""
    search = beam(n=1, beam_width=1, num_iterations=3)
    (work,) = search.ask()
    ran_on = step("one\n\n") + step("two\n\n") + step(r"\boxed{1}", Stop.END)
    search.tell(Generated(work.node, ran_on))
    assert search.ask() == [Score((0,), need_open=True)]
    search.tell(Scored((0,), 0.5))
    assert [work.node for work in search.ask()] == [(0, 0)]
    assert not search.done


@pytest.mark.parametrize(
    "config",
    [
        BeamSearchConfig(n=4, beam_width=2, num_iterations=3, finish="eos"),
        DvtsConfig(n=4, beam_width=2, num_iterations=15),
        RebaseConfig(n=4, num_iterations=2, finish="eos"),
        SampleSearchConfig(n=4),
    ],
)
def test_no_chain_overflows_the_context(tiny_deployment, words, config):
    """FastTTS port: speculative text written out in the last iteration overflowed the context."""
    generator = tiny_deployment.generator.model_copy(update={"max_seq_len": 56})
    small = tiny_deployment.model_copy(update={"generator": generator})
    run = Run(small, words, config, "decoupled")
    run.generator.end = 0.0
    run.go()
    full = 0
    for name, search in run.searches.items():
        problem = next(problem for problem in PROBLEMS if problem.id == name)
        prompt = len(tiny_prompt(run, problem))
        for done in search.result().completions:
            chain = search.tree.chain(done.node)
            length = prompt + sum(len(node.thought.token_ids) for node in chain)
            assert length <= 56
            full += length == 56
    assert full, "no chain reached the limit: the test shows nothing"


def tiny_prompt(run, problem):
    from tts.prompting.chat import generator_prompt

    return generator_prompt(run.models.generator, run.models.deployment.generator, problem.question)


def test_ids_are_never_tokenised_again(tiny_deployment, tokenizer):
    """FastTTS port: 46 tokens more in 131 steps when texts were tokenised again.

    The words are spelt in an unusual way (letter by letter), which a tokenizer would not repeat.
    """
    letters = [[token for letter in "Therefore" for token in tokenizer.encode(letter)]]
    whole = tokenizer.encode("Therefore")
    words = letters, tokenizer.encode("\n\n")
    run = Run(
        tiny_deployment, words, BeamSearchConfig(n=4, beam_width=2, num_iterations=4), "lockstep"
    )
    run.go()
    sent = {seed: np.frombuffer(ids, np.int32).tolist() for ids, seed in run.calls.generated}
    checked = 0
    for name, search in run.searches.items():
        problem = next(problem for problem in PROBLEMS if problem.id == name)
        prompt = tiny_prompt(run, problem).tolist()
        for node in search.tree:
            chain = search.tree.chain(node.path)[:-1]
            ids = [token for above in chain for token in above.thought.token_ids]
            assert sent[node_seed(1, name, node.path)] == prompt + ids
            checked += len(ids) > len(whole)
    assert checked


def test_runs_under_different_aggregation_are_not_compared_as_one_search(capsys):
    """FastTTS port: one run aggregated by `last`, the other by `prod`."""
    rows = []
    for schedule, how, wall_s in (("lockstep", "last", 20.0), ("decoupled", "prod", 10.0)):
        parameters = {"n": 4, "agg_strategy": how}
        rows.append(row_of(schedule=schedule, parameters=parameters, wall_s=wall_s))
    Console(width=200).print(tables(rows))
    shown = capsys.readouterr().out
    assert "2.00x" not in shown
    assert "trees identical" not in shown


class _Noisy(ScriptedVerifier):
    """Never gives one answer twice, as kernels in low precision do not."""

    async def score(self, call):
        self.calls.scored.append(call.input_ids.tobytes())
        return VerifierResult(min(1.0, 0.5 + 0.01 * len(self.calls.scored) % 0.4))


def test_a_noisy_verifier_cannot_give_one_path_two_scores(tiny_deployment, words):
    """FastTTS port: about 2% noise when a path was scored again; here it is asked once."""
    run = Run(
        tiny_deployment, words, BeamSearchConfig(n=8, beam_width=4, num_iterations=4), "decoupled"
    )
    run.verifier = _Noisy(calls=run.calls)
    run.go()
    for search in run.searches.values():
        scores = {}
        for node in search.tree:
            scores.setdefault(search.tree.text(node.path), set()).add(node.score)
        assert all(len(seen) == 1 for seen in scores.values())
    assert len(set(run.calls.scored)) == len(run.calls.scored)


@pytest.mark.parametrize("how", ["last", "min", "prod", "mean"])
def test_a_missing_score_is_an_error_and_not_a_default(how):
    """vLLM's cached positions had no score; a default of 1 would win every comparison."""
    tree = Tree()
    tree.add((0,)).thought = step("x")[0]
    with pytest.raises(ValueError, match="without a score"):
        tree.path_score((0,), how)
    with pytest.raises(ValueError, match="without a score"):
        aggregate([], how)


def test_the_delimiter_leaves_no_empty_turn(tokenizer):
    r"""search-and-learn splits "a\n\n" into "a" and "", and its verifier scores the empty turn."""
    form = verifier_dialogue(tokenizer, VerifierSpec.model_construct())
    first = form.first("1 + 1?", "a")
    assert form.extend(first, "".strip()) is first


def test_a_step_of_white_space_ends_its_chain():
    search = beam(n=1, beam_width=1, num_iterations=9)
    grow(search, " \n\n")
    grow(search)
    assert search.done
