"""What tests of benchmarks ask for, and do to the folders of runs."""

from msgspec.structs import replace

from tts.lab.observer import Observer
from tts.runs.config import RunConfig
from tts.runs.folder import read_json, write_json

WANTED = RunConfig(
    deployment_source="tiny",
    dataset="demo",
    limit=3,
    schedule="lockstep",
    parameters={"n": 4, "max_tokens": 16},
)
ALL = replace(WANTED, limit=2, strategy="all", parameters={"max_tokens": 16})


class Said(Observer):
    def __init__(self):
        self.lines = []

    def say(self, line):
        self.lines.append(line)


def edit(file, **changes):
    write_json(file, {**read_json(file, ""), **changes})
