"""Seeds."""

from tts.search import node_seed, unit_interval


def test_seeds_are_stable_and_distinct_and_their_numbers_uniform():
    assert node_seed(0, "p", (0,)) == 2606024652530248270
    seeds = {
        node_seed(run, problem, node)
        for run in (0, 1)
        for problem in ("p", "q")
        for node in ((0,), (1,), (0, 1), (0, 0, 1), (11,), (1, 1), (-1, 1), (0, -1))
    }
    assert len(seeds) == 32
    assert all(0 <= seed < 2**63 for seed in seeds)
    for node in ((), (0,), (3, 1)):
        first, *others = (node_seed(0, "p", (*node, at), consecutive=True) for at in range(5))
        assert others == [(first + at) % 2**63 for at in range(1, 5)]
        assert first == node_seed(0, "p", node)
    assert node_seed(0, "p", (-1, 4), consecutive=True) == node_seed(0, "p", (-1, 4))
    drawn = sorted(unit_interval(node_seed(1, "p", (-1, i))) for i in range(2000))
    assert all(abs(number - i / 2000) < 0.04 for i, number in enumerate(drawn))
    assert 0 < unit_interval(0) < unit_interval(2**63 - 1) == 1
