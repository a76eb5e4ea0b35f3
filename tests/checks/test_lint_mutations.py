"""The mutation score of `tts lint`: single faults in a deployment and in all that is made of it.

A part of the long form of the tests; `LINT_MUTATIONS=400` tries more faults, `LINT_SEED` others.
"""

import os
import random
import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.checks import faults
from tests.checks.deployments import CHECKPOINTS, leave_engines
from tests.checks.faults.site import ROLES, Kind, NotHere, Site, need_gpus
from tests.checks.test_manifests import HEADED
from tests.serving import mutations

from tts.build import paths
from tts.build.builder import build_engines
from tts.build.errors import ConfigError
from tts.build.spec import bundled_deployments, load_deployment
from tts.build.tensorrt import contract
from tts.build.tensorrt.commands import Step, steps
from tts.checks import DEEP, build_settings, check_manifests, container_command, lint
from tts.serving.command.server_command import ServerCommand, server_command
from tts.serving.contract import Finding
from tts.serving.repository.manifests import render_manifests
from tts.serving.repository.render import render_repository

MUTATIONS = int(os.environ.get("LINT_MUTATIONS", "120"))
SEED = os.environ.get("LINT_SEED", "0")


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


@contextmanager
def command_mutation(kind: Callable[..., None], site: Site, rng: random.Random) -> Iterator[str]:
    """While it lasts, the compiler of one engine would be called with another command."""
    need_gpus(site)
    hit = rng.choice(ROLES)

    def planned(*given: Any) -> list[Step]:
        made = steps(*given)
        return corrupted(made, kind, rng) if given[1] == hit else made

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(build_settings, "steps", planned)
        yield f"{kind.__name__} in the command of the {hit}"


@contextmanager
def file_mutation(kind: Kind, site: Site, rng: random.Random) -> Iterator[str]:
    """While it lasts, one file of the site is another."""
    yield kind(site, rng)


# the docker command that runs a server


def word_dropped(words: list[str], rng: random.Random) -> None:
    words.pop(rng.choice(looked_at(words)))


def word_altered(words: list[str], rng: random.Random) -> None:
    words[rng.choice(looked_at(words))] += rng.choice(["x", "0", ",readonly"])


def word_twice(words: list[str], rng: random.Random) -> None:
    words.insert(1, words[rng.choice(looked_at(words))])


def mounts_crossed(words: list[str], rng: random.Random) -> None:
    one, other = rng.sample([i for i, word in enumerate(words) if word.startswith("--mount=")], 2)
    (left, right), (other_left, other_right) = (words[i].split(",dst=") for i in (one, other))
    words[one], words[other] = f"{left},dst={other_right}", f"{other_left},dst={right}"


def option_added(words: list[str], rng: random.Random) -> None:
    added = ["--privileged", "--network=host", "--env=LD_PRELOAD=/tmp/x.so", "--cap-add=ALL"]
    words.insert(2, rng.choice(added))


CONTAINER_KINDS = [word_dropped, word_altered, word_twice, mounts_crossed, option_added]


def looked_at(words: Sequence[str]) -> list[int]:
    """Places in a docker command that mean the same for every server but its name."""
    image = next(i for i, word in enumerate(words) if word.startswith("nvcr.io/"))
    flags = ("--model-repository", "--model-control-mode", *container_command.CLOSED_BY)
    return [
        i
        for i, word in enumerate(words)
        if (i <= image and not word.startswith("--name="))
        or word.partition("=")[0] in flags
        or word.partition("=")[0].endswith(("-port", "-address"))
    ]


@contextmanager
def container_mutation(kind: Callable[..., None], site: Site, rng: random.Random) -> Iterator[str]:
    """While it lasts, a server would be run by another docker command."""
    need_gpus(site)

    def planned(*given: Any) -> ServerCommand:
        made = server_command(*given)
        kind(made.words, rng)
        return made

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(container_command, "server_command", planned)
        yield f"{kind.__name__} in the docker command"


def repository_mutation(
    kind: Callable[[Path, random.Random], str], site: Site, rng: random.Random
) -> str:
    need_gpus(site)
    return kind(site.built / "model_repository", rng)


MUTATION_KINDS = [
    *(partial(file_mutation, kind) for kind in faults.KINDS),
    *(partial(file_mutation, partial(repository_mutation, kind)) for kind in mutations.KINDS),
    *(partial(command_mutation, kind) for kind in COMMAND_KINDS),
    *(partial(container_mutation, kind) for kind in CONTAINER_KINDS),
]


def made(name: str, root: Path) -> Site:
    """All that there can be of a ready-made deployment; only demo checkpoints are at hand."""
    file = paths.deployments_dir() / f"{name}.yaml"
    data = yaml.safe_load(file.read_text())
    root.mkdir(parents=True)
    site = Site(root)
    for role in ROLES:
        checkpoint = Path(data[role]["checkpoint"]).name
        data[role]["checkpoint"] = checkpoint
        if (CHECKPOINTS / checkpoint).is_dir():
            shutil.copytree(CHECKPOINTS / checkpoint, root / checkpoint)
    if prompt := data["verifier"].get("prompt_file"):
        shutil.copytree(file.parent / Path(prompt).parent, root / Path(prompt).parent)
    site.file.write_text(yaml.safe_dump(data))
    deployment = load_deployment(site.file)
    if deployment.target == "tensorrt" and (root / checkpoint).is_dir():
        leave_engines(deployment)
    elif (root / checkpoint).is_dir():
        build_engines(deployment, verify=False, say=lambda _: None)
    render_repository(deployment)
    if deployment.tensorrt:
        render_manifests(deployment, site.manifests)
    return site


def findings(site: Site) -> list[Finding]:
    """Errors and warnings of everything that lint looks at."""
    deployment = load_deployment(site.file)
    found = lint(deployment, DEEP)
    if deployment.tensorrt:
        found += check_manifests(deployment, site.manifests)
    return [finding for finding in found if finding.severity != "note"]


def told(site: Site) -> bool:
    """Whether lint has anything to say; a deployment that cannot be read is refused by name."""
    try:
        return bool(findings(site))
    except ConfigError:
        return True


@pytest.mark.slow
def test_every_single_mutation_is_found(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    record_property: Callable[[str, object], None],
):
    sites = []
    for name in bundled_deployments():
        if name == HEADED or name.endswith("-cpu"):  # not to be rendered without checkpoints
            continue
        monkeypatch.setenv("TTS_HOME", str(tmp_path / name / "home"))
        sites.append(made(name, tmp_path / name))
        assert findings(sites[-1]) == []
        shutil.copytree(tmp_path / name, tmp_path / "clean" / name)
    draw = random.Random(SEED)
    kinds = draw.sample(MUTATION_KINDS, len(MUTATION_KINDS))
    missed = []
    for number in range(MUTATIONS):
        rng = random.Random(f"{SEED} {number}")
        kind = kinds[number % len(kinds)]  # all of them, and equally often
        for site in rng.sample(sites, len(sites)):
            name = site.root.name
            monkeypatch.setenv("TTS_HOME", str(site.root / "home"))
            try:
                with kind(site, rng) as what:
                    if not told(site):
                        missed.append(f"{number}, {name}: {what}")
            except NotHere:
                continue
            shutil.rmtree(site.root)
            shutil.copytree(tmp_path / "clean" / name, site.root)
            break
    score = f"{MUTATIONS - len(missed)} of {MUTATIONS} mutations found"
    record_property("mutation score", score)
    print(f"{score}, of {len(kinds)} kinds")
    assert missed == []
