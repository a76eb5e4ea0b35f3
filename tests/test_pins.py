"""The pins name everything that the project needs, and the lock file names every pin."""

import re
from importlib import metadata
from pathlib import Path

import tomllib
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).resolve().parents[1]
OF_THE_VENV = "setuptools"
"""What torch needs and a virtual environment brings."""


def pins() -> dict[str, Requirement]:
    """The lines of constraints.txt, by the name that indexes use."""
    lines = (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()
    found = [Requirement(line) for line in lines if not line.startswith("#")]
    return {canonicalize_name(pin.name): pin for pin in found}


def locked() -> dict[str, tuple[Requirement, list[str]]]:
    """The requirements of requirements.lock with their hashes, by the same names."""
    text = (ROOT / "requirements.lock").read_text(encoding="utf-8")
    found = {}
    for line in text.replace("\\\n", "").splitlines():
        if not line.startswith("#"):
            wanted, *hashes = line.split("--hash=")
            requirement = Requirement(wanted)
            found[requirement.name] = requirement, [each.strip() for each in hashes]
    return found


def test_the_lock_names_every_pin_with_the_same_version_and_hashes() -> None:
    known = locked()
    assert known.keys() == pins().keys(), "run: scripts/run lock"
    for name, pin in pins().items():
        requirement, hashes = known[name]
        assert requirement.specifier == pin.specifier, f"{name}: run scripts/run lock"
        assert (requirement.marker is None) == (pin.marker is None), name
        assert hashes, name
        assert all(re.fullmatch("sha256:[0-9a-f]{64}", each) for each in hashes), name


def test_every_pin_is_one_version() -> None:
    for name, pin in pins().items():
        (only,) = pin.specifier
        assert only.operator == "==", name
        assert "*" not in only.version, name


def test_what_is_needed_is_pinned_within_what_is_allowed() -> None:
    """Everything that an environment for development has, also what others need in turn."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    build = [Requirement(text) for text in project["build-system"]["requires"]]
    waiting = [*build, Requirement("tts-toolkit[dev]")]
    seen = set()
    while waiting:
        wanted = waiting.pop()
        name = canonicalize_name(wanted.name)
        if name == OF_THE_VENV:
            continue
        if name != "tts-toolkit":
            assert name in pins(), f"{wanted} is not in constraints.txt"
            (version,) = (only.version for only in pins()[name].specifier)
            assert wanted.specifier.contains(version, prereleases=True), f"{wanted}, not {version}"
        for extra in {"", *wanted.extras}:
            if (name, extra) not in seen:
                seen.add((name, extra))
                waiting += needed_by(name, extra, project)
    assert len(seen) > 150


def needed_by(name: str, extra: str, project: dict) -> list[Requirement]:
    """What a package needs on this machine: tts by pyproject.toml, others as they are installed."""
    if name == "tts-toolkit":
        optional = project["project"]["optional-dependencies"]
        texts = optional[extra] if extra else project["project"]["dependencies"]
        return [each for each in map(Requirement, texts) if holds(each, "")]
    try:
        found = metadata.requires(name) or []
    except metadata.PackageNotFoundError:  # pinned, and not in this environment
        return []
    return [each for each in map(Requirement, found) if holds(each, extra)]


def holds(wanted: Requirement, extra: str) -> bool:
    return wanted.marker is None or wanted.marker.evaluate({"extra": extra})
