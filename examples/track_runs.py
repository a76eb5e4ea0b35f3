"""Runs in MLflow, W&B or Trackio: settings and measures, from the table that `tts` exports.

tts runs export runs/ONE runs/OTHER --out problems.csv
pip install mlflow && python examples/track_runs.py problems.csv --to mlflow
"""

from __future__ import annotations

import argparse
import csv
import importlib
import json
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from statistics import mean
from typing import Any

SETTINGS = ("deployment", "dataset", "strategy", "n", "seed")
MEASURES = ("correct", "tokens", "compute", "seconds")


def summaries(file: Path) -> Iterator[tuple[str, dict[str, Any], dict[str, float]]]:
    """The name of each run, its settings, and its measures: means over its problems."""
    runs = defaultdict(list)
    for row in csv.DictReader(file.read_text(encoding="utf-8").splitlines(keepends=True)):
        runs[row["run"], row["strategy"]].append(row)
    for (run, strategy), rows in runs.items():
        settings = {name: rows[0][name] for name in SETTINGS} | {"problems": len(rows)}
        measures = {
            name: mean(float({"true": 1, "false": 0}.get(row[name], row[name])) for row in rows)
            for name in MEASURES
            if all(row[name] for row in rows)
        }
        yield f"{run} {strategy}", settings | json.loads(rows[0]["settings"]), measures


def main() -> None:
    """Log every run to the tracker."""
    parser = argparse.ArgumentParser(description="Log exported runs to a tracker.")
    parser.add_argument("file", type=Path, help="what tts runs export has written")
    parser.add_argument("--to", choices=("mlflow", "wandb", "trackio"), required=True)
    parser.add_argument("--project", default="tts")
    options = parser.parse_args()
    try:
        runs = list(summaries(options.file))
        tracker: Any = importlib.import_module(options.to)
    except (OSError, UnicodeDecodeError, KeyError) as error:
        parser.error(f"{options.file} is no CSV file that tts runs export has written: {error}")
    except ImportError as error:
        parser.error(f"{error}. Install it: pip install {options.to}")
    if options.to == "mlflow":
        tracker.set_experiment(options.project)
    for name, settings, measures in runs:
        if options.to == "mlflow":
            with tracker.start_run(run_name=name):
                tracker.log_params(settings)
                tracker.log_metrics(measures)
        else:  # Trackio has the functions of W&B
            tracker.init(project=options.project, name=name, config=settings)
            tracker.log(measures)
            tracker.finish()
        print(name, " ".join(f"{key}={value:.4g}" for key, value in measures.items()))


if __name__ == "__main__":
    main()
