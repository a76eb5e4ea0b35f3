"""The names of the built-in strategies, for help texts: importing this costs nothing."""

STRATEGY_NAMES = (
    "greedy",
    "majority-vote",
    "adaptive-vote",
    "weighted-adaptive-vote",
    "confidence-vote",
    "best-of-n",
    "weighted-best-of-n",
    "beam-search",
    "dvts",
    "rebase",
    "particle-filtering",
    "mcts",
    "auto",
)
"""The names in the order of the catalog; a test compares the two."""
TEXT_PARAMETERS = ("answer_regex", "answer_schema")
"""Parameters that are read as they are typed: as YAML `[0-9]+` would be no text."""
