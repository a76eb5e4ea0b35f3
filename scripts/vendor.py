"""Fetch the scripts of third parties that reports contain, and verify them.

The manifest beside them (orchestrator/tts/reports/page/static/vendor/manifest.json) names each
package, its version and the integrity of its archive on npm. This fetches the archives with npm,
compares them with the manifest, and writes the files again; nothing else may have changed.

    scripts/run vendor                  # fetch what the manifest says, verify, write
    scripts/run vendor --check          # only compare the files here with the manifest: no network
    scripts/run vendor vega@6.3.0       # take another version of a package into the manifest
"""

from __future__ import annotations

import argparse
import base64
import hashlib
import io
import json
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path
from typing import Any

from tts.reports.page.assets import MANIFEST, VENDOR, known_packages

_IMPORT = "import { ascending, isString, DisallowedObjectProperties } from 'vega-util';\n"
_EXPORT = "export { expression as expressionInterpreter };\n"


def main() -> None:
    """Fetch, or check what is here."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--check", action="store_true", help="do not fetch anything")
    parser.add_argument("packages", nargs="*", metavar="NAME@VERSION")
    arguments = parser.parse_args()
    packages = known_packages()
    if arguments.check:
        wrong = [package["file"] for package in packages if not is_as_known(package)]
        sys.exit(f"changed since they were fetched: {', '.join(wrong)}" if wrong else 0)
    for wanted in arguments.packages:
        name, _, version = wanted.rpartition("@")
        (package,) = (each for each in packages if each["name"] == name)
        package.update(version=version, integrity=None, sha256=None)
    for package in packages:
        fetch(package)
        print(f"{package['name']} {package['version']}: {package['file']}")
    text = json.dumps(packages, indent=2) + "\n"
    MANIFEST.write_text(text, "utf-8")


def is_as_known(package: dict[str, Any]) -> bool:
    """Whether a file here is the one that the manifest names."""
    known: str = package["sha256"]
    return sha256((VENDOR / package["file"]).read_bytes()) == known


def fetch(package: dict[str, Any]) -> None:
    """Fetch one package and write its files; ends the script if it is not what it was."""
    archive = packed_by_npm(f"{package['name']}@{package['version']}")
    integrity = "sha512-" + base64.b64encode(hashlib.sha512(archive).digest()).decode()
    must_equal(package, "integrity", integrity)
    with tarfile.open(fileobj=io.BytesIO(archive)) as files:
        script = read(files, package["source"])
        if package["name"] == "vega-interpreter":
            script = as_script(script)
        must_equal(package, "sha256", sha256(script))
        (VENDOR / package["file"]).write_bytes(script)
        has_license = "package/LICENSE" in files.getnames()
        licence = read(files, "LICENSE") if has_license else license_of(package)
        (VENDOR / package["license_file"]).write_bytes(licence)


def license_of(package: dict[str, Any]) -> bytes:
    """The licence of vega-interpreter, whose archive has none: its repository is vega's."""
    if package["name"] != "vega-interpreter":
        sys.exit(f"{package['name']} {package['version']}: its archive has no LICENSE")
    (vega,) = (each for each in known_packages() if each["name"] == "vega")
    file: str = vega["license_file"]
    return (VENDOR / file).read_bytes()


def packed_by_npm(name: str) -> bytes:
    """The archive of a package, as npm has it."""
    with tempfile.TemporaryDirectory() as folder:
        command = ["npm", "pack", "--silent", "--pack-destination", folder, name]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
        (file,) = Path(folder).iterdir()
        return file.read_bytes()


def read(files: tarfile.TarFile, name: str) -> bytes:
    """A file of a package's archive, without the line that names a source map."""
    file = files.extractfile(f"package/{name}")
    assert file is not None
    lines = file.read().splitlines(keepends=True)
    return b"".join(line for line in lines if not line.startswith(b"//# sourceMappingURL="))


def as_script(module: bytes) -> bytes:
    """The interpreter, which is published as a module only, as a script that defines it on vega."""
    text = module.decode()
    if _IMPORT not in text or _EXPORT not in text:
        sys.exit("vega-interpreter imports or exports something else than it did: see as_script")
    text = text.replace(
        _IMPORT, "const { ascending, isString, DisallowedObjectProperties } = vega;\n"
    )
    text = text.replace(_EXPORT, "vega.expressionInterpreter = expression;\n")
    return f"(() => {{\n{text}}})();\n".encode()


def must_equal(package: dict[str, Any], field: str, value: str) -> None:
    """Enter a value that is not known yet; end the script if it is another than the known one."""
    if package[field] is None:
        package[field] = value
    if package[field] != value:
        sys.exit(f"{package['name']}: {field} is {value}, the manifest says {package[field]}")


def sha256(data: bytes) -> str:
    """In hexadecimal."""
    return hashlib.sha256(data).hexdigest()


if __name__ == "__main__":
    main()
