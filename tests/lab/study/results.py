"""Results of cells as if they had been run."""

from pathlib import Path

from tts.lab.study.cells import BASE, Cell, CellEngines
from tts.lab.study.results import RunResult, compared

CELLS = [
    Cell(BASE, "as deployed", 16),
    Cell("lockstep", "schedule lockstep", 16, schedule="lockstep"),
    Cell("batched", "schedule batched", 16, schedule="batched"),
    Cell("speculation-off", "speculation off", 16, speculation="off"),
    Cell("in-flight-1", "1 at a time", 16, in_flight=1),
    Cell("in-flight-4", "4 at a time", 16, in_flight=4),
    Cell("n-4", "n = 4", 4),
    Cell("n-32", "n = 32", 32),
    Cell("split-5", "generator 5% of the KV memory", 16, CellEngines(share=0.05)),
    Cell("split-50", "generator 50% of the KV memory", 16, CellEngines(share=0.5)),
    Cell("no-prefix-reuse", "without prefix reuse", 16, CellEngines(reuse=False)),
]


def run_result(seconds, right=10, problems=20, first=0, tokens=1000, median_s=2.0):
    return RunResult(
        folder=Path("nowhere"),
        wall_s=seconds,
        problems=problems,
        generated_tokens=tokens * problems,
        compute=4e6 * tokens * problems,
        useful_tokens=tokens * problems // 2,
        goodput=50.0,
        latencies_s=(median_s / 2, median_s, 2 * median_s),
        right={str(first + i): i < right for i in range(problems)},
        scores=100,
        cached_scores=10,
        tree_digest="digest",
    )


def results_of(seconds, right=None, cells=CELLS, medians_s=None):
    """`seconds`: of each round, by cell; 10 for cells that it lacks. `right`: of 20 in each.

    `medians_s`: of the time per problem, as `seconds`; 2 for cells that it lacks.
    """
    right, medians_s = right or {}, medians_s or {}
    runs = {
        cell.name: tuple(
            run_result(
                each,
                right.get(cell.name, 10),
                first=100 * place,
                tokens=60 * cell.n,
                median_s=medians_s.get(cell.name, [2.0, 2.02, 1.98])[place],
            )
            for place, each in enumerate(seconds.get(cell.name, [10.0, 10.1]))
        )
        for cell in cells
    }
    return compared(cells, runs)
