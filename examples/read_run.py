"""Read a run folder: its problems, one search tree, its measures, and its requests as a table.

    tts bench demo --limit 20 --server embedded --out runs/mine
    python examples/read_run.py runs/mine

It needs no engines: everything comes from the log. Where pandas or polars is installed,
`Run.to_frames` returns data frames; without one the records are plain objects.
"""

from __future__ import annotations

import argparse
from collections import defaultdict
from statistics import mean

from tts import Run
from tts.base.errors import TtsError
from tts.runs.records import ProblemRecord


def print_tree(problem: ProblemRecord) -> None:
    """The paths of a problem's completions, each step once, indented by its depth."""
    seen = set()
    for done in sorted(problem.completions, key=lambda completion: completion.node):
        for depth, (step, score) in enumerate(zip(done.steps, done.step_scores, strict=True), 1):
            node = done.node[:depth]
            if node not in seen:
                seen.add(node)
                text = " ".join(step.split())[:70]
                print(f"  {'-' if score is None else format(score, '.2f'):>5} {'  ' * depth}{text}")


def print_requests(run: Run) -> None:
    """Requests by engine and kind, first as records, then as a data frame if there can be one."""
    groups = defaultdict(list)
    for request in run.requests:
        groups[request.engine, request.kind].append(request.seconds)
    print("\nengine     kind         requests  mean seconds")
    for (engine, kind), seconds in sorted(groups.items()):
        print(f"{engine:9}  {kind:11}  {len(seconds):8}  {mean(seconds):12.3f}")
    try:
        _, requests = run.to_frames()
    except TtsError as error:  # neither pandas nor polars is installed
        print(f"{error.message} {error.hint}")
    else:
        print(requests.head())


def main() -> None:
    """Print what the folder holds."""
    parser = argparse.ArgumentParser(description="Read a run folder.")
    parser.add_argument("folder", help="of tts bench, or of solve_many(..., out=FOLDER)")
    given = parser.parse_args()
    run = Run.load(given.folder)
    print(f"{run.config.strategy} on {run.config.dataset or 'problems of a program'}")
    for problem in run.problems[:10]:
        mark = {True: "right", False: "wrong", None: "-"}[problem.correct]
        print(f"  {problem.id:20} {mark:5}  {problem.answer}  {problem.tokens} tokens")
    if run.problems:
        print(f"\ncompletions of {run.problems[0].id}: {run.problems[0].question}")
        print_tree(run.problems[0])
    print("\nmeasures")
    for name in ("accuracy", "problem_throughput", "generated_tokens", "useful_share"):
        if (value := run.measures.get(name)) is not None:
            print(f"  {name:22} {value:,.4g}")
    print_requests(run)


if __name__ == "__main__":
    main()
