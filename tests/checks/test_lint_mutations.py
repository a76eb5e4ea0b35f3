"""The mutation score of `tts lint`: single changes to what would be built and served."""

import random
import shutil
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.serving.mutations import KINDS

from tts.build import paths
from tts.build.spec import bundled_deployments, load_deployment
from tts.build.tensorrt import contract
from tts.build.tensorrt.commands import Step, steps
from tts.checks import build_settings, lint
from tts.serving.repository.render import render_repository

MUTATIONS = 200
GPU = [n for n in bundled_deployments() if load_deployment(n).target == "tensorrt"]


def value(words: list[str], at: int, rng: random.Random) -> None:
    """Another value that the flag could have."""
    flag, old = contract.build_flags()[words[at]], words[at + 1]
    if flag.choices:
        words[at + 1] = rng.choice([choice for choice in flag.choices if choice != old])
    elif flag.type == "int":
        words[at + 1] = rng.choice(
            [str(2 * int(old)), str(int(old) + 1), "1" if old != "1" else "3"]
        )
    else:
        words[at + 1] = rng.choice([f"{old}x", str(Path(old).parent)])


def nonsense(words: list[str], at: int, rng: random.Random) -> None:
    words[at + 1] = rng.choice(["", "-1", "none", "0x10", "1e3", "True"])


def dropped(words: list[str], at: int, rng: random.Random) -> None:
    del words[at : at + (1 if words[at + 1].startswith("--") else 2)]


def misspelt(words: list[str], at: int, rng: random.Random) -> None:
    words[at] = rng.choice([words[at] + "s", words[at].replace("_", "-", 1) + "x", words[at][:-1]])


def swapped(words: list[str], at: int, rng: random.Random) -> None:
    """The values of two flags."""
    others = [i for i in flags_with_values(words) if words[i + 1] != words[at + 1]]
    other = rng.choice(others)
    words[at + 1], words[other + 1] = words[other + 1], words[at + 1]


def added(words: list[str], at: int, rng: random.Random) -> None:
    """A flag that exists and nobody asked for."""
    unused = sorted(set(contract.build_flags()) - set(words))
    name = rng.choice(unused)
    flag = contract.build_flags()[name]
    argument = flag.choices[0] if flag.choices else "1"
    words += [name] if flag.type == "switch" else [name, argument]


def switched(words: list[str], at: int, rng: random.Random) -> None:
    """Logits of every generated token: the verifier's engine, and only it, must have them."""
    if "--gather_generation_logits" in words:
        words.remove("--gather_generation_logits")
    else:
        words.append("--gather_generation_logits")


COMMAND_KINDS = [value, nonsense, dropped, misspelt, swapped, added, switched]


def flags_with_values(words: Sequence[str]) -> list[int]:
    return [
        i
        for i, word in enumerate(words[:-1])
        if word.startswith("--") and not words[i + 1].startswith("--")
    ]


def corrupted(made: list[Step], kind: Callable[..., None], rng: random.Random) -> list[Step]:
    words = list(made[-1].command)
    kind(words, rng.choice(flags_with_values(words)), rng)
    assert tuple(words) != made[-1].command
    return [*made[:-1], replace(made[-1], command=tuple(words))]


@pytest.mark.slow
def test_every_single_mutation_is_found(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    record_property: Callable[[str, object], None],
):
    monkeypatch.setenv("TTS_HOME", str(tmp_path))
    clean = {}
    for name in GPU:
        folder = render_repository(load_deployment(name))
        clean[name] = Path(shutil.copytree(folder, tmp_path / "clean" / name))
        assert not any(finding.severity == "error" for finding in lint(load_deployment(name)))
    missed = []
    counts = {"repository": 0, "command": 0}
    for seed in range(MUTATIONS):
        rng = random.Random(seed)
        deployment = load_deployment(GPU[seed % len(GPU)])
        folder = paths.repository_dir(deployment.name)
        kind: Any = rng.choice([*KINDS, *COMMAND_KINDS])
        with monkeypatch.context() as patch:
            if kind in COMMAND_KINDS:
                counts["command"] += 1
                hit = rng.choice(["generator", "verifier"])
                what = f"{kind.__name__} in the command of the {hit}"

                def planned(*given: Any, kind=kind, rng=rng, hit=hit) -> list[Step]:
                    made = steps(*given)
                    return corrupted(made, kind, rng) if given[1] == hit else made

                patch.setattr(build_settings, "steps", planned)
            else:
                counts["repository"] += 1
                what = kind(folder, rng)
            if not any(finding.severity == "error" for finding in lint(deployment)):
                missed.append(f"{seed}, {deployment.name}: {what}")
        shutil.rmtree(folder)
        shutil.copytree(clean[deployment.name], folder)
    score = f"{MUTATIONS - len(missed)} of {MUTATIONS} mutations found"
    record_property("mutation score", score)
    print(f"{score} ({counts['repository']} of repositories, {counts['command']} of commands)")
    assert missed == []
