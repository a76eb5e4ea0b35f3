"""The lock files name what the project needs, in versions that it allows, each with its hashes."""

import re
import tomllib

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from scripts import lock

LOCKED = {
    file: lock.entries(file.read_text(encoding="utf-8")) for file in (lock.LOCK, lock.DEV_LOCK)
}


@pytest.mark.parametrize(
    ("files", "extras"),
    [([lock.LOCK], lock.DEMO), ([lock.LOCK, lock.DEV_LOCK], None)],
)
def test_what_pyproject_names_is_locked_within_what_it_allows(files, extras) -> None:
    project = tomllib.loads((lock.ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    optional = project["project"]["optional-dependencies"]
    wanted = project["build-system"]["requires"] + project["project"]["dependencies"]
    for extra in extras or optional:
        wanted += optional[extra]
    locked = {name: text for file in files for name, text in LOCKED[file].items()}
    for requirement in map(Requirement, wanted):
        if requirement.name != project["project"]["name"]:
            text = locked[canonicalize_name(requirement.name)]
            (pin,) = Requirement(text.split(" \\")[0]).specifier
            assert pin.operator == "=="
            assert requirement.specifier.contains(pin.version), "run: scripts/run lock"


def test_each_pin_has_hashes_and_stands_once() -> None:
    assert not LOCKED[lock.LOCK].keys() & LOCKED[lock.DEV_LOCK].keys()
    for file, entries in LOCKED.items():
        text = file.read_text(encoding="utf-8")
        assert f": {len(entries)} wheels, " in text.partition("\n")[0]
        for entry in entries.values():
            assert re.fullmatch(r"\S+==\S+( \\\n    --hash=sha256:[0-9a-f]{64})+\n", entry), entry
