"""Beam search grows the trees of examples/beam_search_in_one_file.py, under every schedule."""

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
from tts.search import BeamSearchConfig, Expand, Fate, Score, node_seed


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
