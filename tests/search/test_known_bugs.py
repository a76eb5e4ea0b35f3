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
from tests.search.driving import END, STEP, build, grow

from tts.endpoints.base import VerifierResult
from tts.prompting import Context
from tts.reports.terminal import tables
from tts.search import (
    BeamSearchConfig,
    DvtsConfig,
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


def test_an_end_of_sequence_several_steps_ahead_does_not_end_the_beam():
    """FastTTS port: an engine that ran on past the delimiter to the end ended the chain there."""
    search = build(BeamSearchConfig(n=1, beam_width=1, num_iterations=3))
    (work,) = search.ask()
    search.tell(Generated(work.node, STEP + STEP + END))
    assert search.ask() == [Score((0,), may_be_pruned=True)]
    search.tell(Scored((0,), 0.5))
    assert [work.node for work in search.ask()] == [(0, 0)]
    assert not search.done


def test_a_step_of_white_space_ends_its_chain():
    search = build(BeamSearchConfig(n=1, beam_width=1, num_iterations=9))
    grow(search, (0.5,), (Thought((1,), " \n\n", Stop.STEP),))
    assert search.done


def chains(run):
    """Of every node of a run: its problem, its place, and the ids of its prompt and its chain."""
    for problem in PROBLEMS:
        prompt = Context.of(run.models, problem).generator_ids(()).tolist()
        tree = run.searches[problem.id].tree
        for node in tree:
            above = [token for each in tree.chain(node.path) for token in each.thought.token_ids]
            yield problem.id, node, prompt + above


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
    run = Run(small, (words[0][:-1], words[1]), config, "decoupled")  # without the empty word
    run.generator.end = 0.0
    run.go()
    full = [node for _, node, ids in chains(run) if len(ids) == 56]
    assert max(len(ids) for _, _, ids in chains(run)) == 56
    assert Stop.LENGTH in {node.thought.stop for node in full}


def test_ids_are_never_tokenised_again(tiny_deployment, tokenizer):
    """FastTTS port: 46 tokens more in 131 steps when texts were tokenised again.

    The words are spelt in an unusual way (letter by letter), which a tokenizer would not repeat.
    """
    letters = [token for letter in "Therefore" for token in tokenizer.encode(letter)]
    assert letters != tokenizer.encode("Therefore")
    words = [letters], tokenizer.encode("\n\n")
    config = BeamSearchConfig(n=4, beam_width=2, num_iterations=4)
    run = Run(tiny_deployment, words, config, "lockstep").go()
    sent = {seed: np.frombuffer(ids, np.int32).tolist() for ids, seed in run.calls.generated}
    depths = set()
    for problem, node, ids in chains(run):
        above = len(ids) - len(node.thought.token_ids)
        assert sent[node_seed(1, problem, node.path)] == ids[:above]
        depths.add(len(node.path))
    assert max(depths) > 1


def test_runs_under_different_aggregation_are_not_compared_as_one_search(capsys):
    """FastTTS port: one run aggregated by `last`, the other by `prod`."""
    rows = [
        row_of(schedule=schedule, parameters={"n": 4, "agg_strategy": how}, wall_s=wall_s)
        for schedule, how, wall_s in (("lockstep", "last", 20.0), ("decoupled", "prod", 10.0))
    ]
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
    config = BeamSearchConfig(n=8, beam_width=4, num_iterations=4)
    run = Run(tiny_deployment, words, config, "decoupled")
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
    tree.add((0,)).thought = STEP[0]
    with pytest.raises(ValueError, match="without a score"):
        tree.path_score((0,), how)
    with pytest.raises(ValueError, match="without a score"):
        aggregate([], how)
