"""Seeds."""

from tts.search import node_seed


def test_seeds_are_stable_and_distinct():
    assert node_seed(0, "p", (0,)) == 2606024652530248270
    seeds = {
        node_seed(run, problem, node)
        for run in (0, 1)
        for problem in ("p", "q")
        for node in ((0,), (1,), (0, 1), (0, 0, 1), (11,), (1, 1), (-1, 1), (0, -1))
    }
    assert len(seeds) == 32
    assert all(0 <= seed < 2**63 for seed in seeds)
