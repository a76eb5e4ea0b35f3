"""A measured map in the deployment file that it belongs to, with what it was measured on."""

from __future__ import annotations

import datetime
from dataclasses import asdict
from pathlib import Path

from tts.base.errors import ConfigError
from tts.build.deployment_edit import require_writable, write_values
from tts.build.spec import bundled_deployments, deployment_file

from .calibrate import VerifierMaps, calibration_fields
from .measurement import Measurement
from .score_run import Scored


def writable_file(deployment: str) -> Path:
    """The file of a deployment that may be changed; raises ConfigError for any other."""
    file = deployment_file(deployment)
    if deployment in bundled_deployments():
        raise ConfigError(
            f"{deployment} is a bundled deployment, and is not changed.",
            hint=f"Copy it, set its name and its checkpoint paths, and name the copy: cp {file} .",
        )
    require_writable(file)
    return file


def write_calibration(
    file: Path, scored: Scored, measurement: Measurement, maps: VerifierMaps
) -> bool:
    """Set verifier.calibration in a deployment file; False if no map holds. Raises ConfigError."""
    fields = calibration_fields(measurement, maps)
    if not fields:
        return False
    measured = {
        "on": scored.source,
        "problems": measurement.problems,
        "chains": measurement.chains,
        "date": datetime.date.today().isoformat(),
        "verifier": asdict(scored.verifier),
    }
    write_values(file, {("verifier", "calibration"): {**fields, "measured": measured}})
    return True
