"""What `tts score` prints with `--json`."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from tts.lab.scoring.calibrate import VerifierMaps, calibration_fields
from tts.lab.scoring.measurement import Measurement
from tts.lab.scoring.score_run import Scored, ScoringCost
from tts.lab.scoring.tables import BestRow, MeasureRow, best_rows, measure_rows
from tts.runs.verdicts import Finding


@dataclass(frozen=True, kw_only=True)
class ScoreDocument:
    """Scores, what they tell of the verifier, and the best of candidates."""

    folder: str
    """It has every score: steps.jsonl, steps.csv."""
    deployment: str
    verifier: dict[str, str]
    """What decides its scores: model, format, template."""
    chains: int
    """Solutions that have scores."""
    problems: int
    steps: int
    """Scores of steps."""
    notes: list[str]
    """What was read as what, and what was left out."""
    cost: ScoringCost
    findings: list[Finding]
    """Sentences, the verdict first."""
    measures: list[MeasureRow]
    """Estimates with their intervals; empty without labels."""
    calibration: dict[str, Any]
    """The fields of verifier.calibration that --write sets; empty where no map holds."""
    best: list[BestRow]
    """The best candidate of each problem; empty where they were not made elsewhere."""
    page: str | None
    """The report; null without labels."""
    written: bool
    """Whether the calibration was written to the deployment file."""

    @classmethod
    def of(
        cls,
        scored: Scored,
        measurement: Measurement,
        findings: list[Finding],
        maps: VerifierMaps,
        page: Path | None,
        *,
        written: bool,
    ) -> ScoreDocument:
        """The document of a scoring."""
        return cls(
            folder=str(scored.folder),
            deployment=scored.deployment.name,
            verifier=asdict(scored.verifier),
            chains=measurement.chains,
            problems=measurement.problems,
            steps=measurement.scores,
            notes=scored.notes,
            cost=scored.cost,
            findings=findings,
            measures=list(measure_rows(measurement)) if measurement.main else [],
            calibration=calibration_fields(measurement, maps),
            best=list(best_rows(scored.rankings)),
            page=str(page) if page else None,
            written=written,
        )
