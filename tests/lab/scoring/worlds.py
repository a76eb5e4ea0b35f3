"""Chains with labels, and verifiers that score them."""

import numpy as np

from tts.lab.scoring.chains import Chain, ScoredChain


def logistic(x):
    return 1 / (1 + np.exp(-x))


def scored_chains(verifier, problems=100, n=8, seed=0, steps=4, labelled="answers"):
    """Chains whose steps go wrong once; `verifier` takes a step's facts and gives its score.

    `labelled`: `answers`, `steps`, or `both`.
    """
    generator = np.random.default_rng(seed)
    chains = []
    for p in range(problems):
        ease = generator.normal(0, 0.8)
        for k in range(n):
            count = int(generator.integers(2, steps + 3))
            bad = generator.random(count) > logistic(2.2 + ease)
            first = int(np.argmax(bad)) if bad.any() else -1
            scores, lengths = [], []
            for place in range(count):
                right = first < 0 or place < first
                length = int(generator.integers(5, 60))
                facts = {
                    "right": right,
                    "noise": generator.normal(0, 1),
                    "depth": place,
                    "last": place == count - 1,
                    "length": length,
                    "ease": ease,
                    "problem": p,
                }
                scores.append(round(float(verifier(facts)), 4))
                lengths.append(length)
            right_steps = [True] * count
            if first >= 0:
                right_steps = [True] * first + [False] + [None] * (count - first - 1)
            chain = Chain(
                str(p),
                f"{p}/{k}",
                f"Question {p}?",
                tuple(f"Step {place}." for place in range(count)),
                tuple(right_steps) if labelled != "answers" else None,
                first < 0 if labelled != "steps" else None,
                str(1 + p % 5),
                f"set.jsonl, line {len(chains) + 1}",
            )
            chains.append(ScoredChain(chain, tuple(scores), tuple(lengths)))
    return chains


def good(facts):
    return logistic(2.5 * (2 * facts["right"] - 1) + 1.2 * facts["noise"])


VERIFIERS = {
    "good": good,
    "weak": lambda f: logistic(0.55 * f["right"] + f["noise"]),
    "worthless": lambda f: logistic(f["noise"]),
    "inverted": lambda f: 1 - good(f),
    "constant": lambda f: 0.5,
    "saturated": lambda f: 1.0 if f["right"] or f["noise"] > 0 else 0.9999,
    "long": lambda f: logistic(2 * f["right"] + f["noise"] + 0.1 * (f["length"] - 30)),
    "easy": lambda f: logistic(3 * f["ease"] + 0.3 * f["noise"]),
    "squeezed": lambda f: 0.4 + 0.2 * good(f),
    "final higher": lambda f: 0.5 * good(f) + 0.5 * f["last"],
}
