"""Requests to the tiny pair's engines."""

import numpy as np

from tts.engines.generate_request import GenerateRequest


def prompt(seed=0, length=40):
    return np.random.default_rng(seed).integers(5, 128, length)


def sampled(seed=0, n=24, length=40, **fields):
    return GenerateRequest(prompt(seed, length), n, top_p=1.0, seed=seed, **fields)


class Stepping:
    """A pipeline with a step of the test's own."""

    def __init__(self, pipeline, step):
        self._pipeline = pipeline
        self.step = step

    def __getattr__(self, name):
        return getattr(self._pipeline, name)
