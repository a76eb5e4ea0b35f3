"""The check of a deployment's `strategies`."""

from tests.checks.deployments import changed, serious


def test_every_wrong_strategy_and_parameter_is_named_by_its_path():
    blocks = {
        "bean-search": {"n": 8},
        "beam-search": {"beam_wdth": 2, "n": 8},
        "best-of-n": {"temperature": -1, "top_p": 2},
        "dvts": {"n": 8, "beam_width": 3},
        "rebase": {"max_tokens": 999},
        "majority-vote": {"n": 8, "temperature": 1.0},
        "greedy": {"n": 4},
        "mcts": {"n": "many"},
        "": {},
    }
    found = serious(changed("demo", {"strategies": blocks}))
    assert {finding.severity for finding in found} == {"error"}
    assert [(finding.where, finding.what.partition(";")[0]) for finding in found] == [
        ("strategies.bean-search", "unknown strategy"),
        ("strategies.beam-search.beam_wdth = 2", "not a parameter that can be set"),
        ("strategies.best-of-n.temperature = -1", "must be at least 0.0"),
        ("strategies.best-of-n.top_p = 2", "must be at most 1.0"),
        ("strategies.dvts", "n is 8, which is not a multiple of beam_width (3), such as 9"),
        (
            "strategies.rebase",
            "max_tokens is 999, but the generator's context holds 320 tokens, prompt and output "
            "together (generator.max_seq_len)",
        ),
        ("strategies.greedy.n = 4", "not a parameter that can be set"),
        (
            "strategies.mcts.n = 'many'",
            "Input should be a valid integer, unable to parse string as an integer",
        ),
        ("strategies.", "unknown strategy"),
    ]
