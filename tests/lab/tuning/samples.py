"""Samples of an engine whose steps take step_s + each_s * load."""

from tts.lab.tuning.measure import LoadSample

LOADS = [2**power for power in range(9)]


def samples_of(step_s, each_s, loads, noise=(1.0,)):
    return [
        LoadSample(load, factor * load / (step_s + each_s * load), 1.0, 1.0)
        for factor in noise
        for load in loads
    ]
