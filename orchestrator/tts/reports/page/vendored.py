"""Third-party parts of pages: packages from npm, and the files taken from them.

A folder of such files has a manifest beside them. `scripts/run vendor` writes both.
"""

from __future__ import annotations

from pathlib import Path

import msgspec


class VendoredFile(msgspec.Struct):
    """A file of a package, and its copy here."""

    source: str
    """Where it is in the package's archive."""
    file: str
    """Where it is in the folder of the manifest."""
    sha256: str | None
    """The hash of the copy, in hexadecimal; None until it is fetched."""


class Package(msgspec.Struct, kw_only=True):
    """A third party's package from npm: the file taken from it, and the hashes to verify it."""

    name: str
    version: str
    license: str
    integrity: str | None
    """The hash of the package's archive, as npm has it: `sha512-` and base64."""
    license_file: str
    adapted: str | None = None
    """Our changes to it; None if there are none."""
    files: tuple[VendoredFile, ...]


def read_manifest(manifest: Path) -> tuple[Package, ...]:
    """The packages that a manifest names, in its order."""
    return msgspec.json.decode(manifest.read_bytes(), type=tuple[Package, ...])
