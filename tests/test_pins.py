"""The pins name everything that the project needs, and the lock file names every pin."""

import re
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from scripts import install, lock

ROOT = Path(__file__).resolve().parents[1]


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
    everything = lock.needed([*lock.build_system(), lock.DEVELOPMENT])
    for name, wanted in everything.items():
        assert name in pins(), f"{wanted[0]} is not in constraints.txt"
        (version,) = (only.version for only in pins()[name].specifier)
        for each in wanted:
            assert each.specifier.contains(version, prereleases=True), f"{each}, not {version}"
    assert len(everything) > 150


def test_the_lock_has_first_what_the_demo_needs_and_then_the_rest() -> None:
    text = lock.LOCK.read_text(encoding="utf-8")
    demo, besides = (
        [name for name, _ in lock.entries(part.requirements)] for part in install.parts()
    )
    assert set(demo) == lock.needed([*lock.build_system(), lock.DEMO]).keys()
    assert {"torch", "openvino", "nvidia-pytriton", "hatchling"} <= set(demo)
    assert {"ray", "pytest", "mypy", "playwright", "mkdocs-material"} <= set(besides)
    assert [part.packages for part in install.parts()] == [len(demo), len(besides)]
    assert lock.in_parts(text, {}).count("--hash=") == text.count("--hash=")


def test_the_lock_says_how_much_each_part_downloads() -> None:
    locked = "rich==15.0.0 \\\n    --hash=sha256:00\nray==2.60.0 \\\n    --hash=sha256:11\n"
    assert lock.in_parts(locked, {"rich": 1_600_000, "ray": 70_000_000}) == (
        f"{lock.HEADER}# For the demo (extras cpu, triton and verify): 1 wheels, 2 MB\n"
        "rich==15.0.0 \\\n    --hash=sha256:00\n"
        "# Besides, for development (extra dev): 1 wheels, 70 MB\n"
        "ray==2.60.0 \\\n    --hash=sha256:11\n"
    )
