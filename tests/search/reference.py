"""Every strategy of docs/reference/strategies.md once more, in the plainest lockstep way.

Written from the definitions alone, so that it checks the search core independently: one candidate
after the other, no events, no order to get wrong. To be read next to the definitions.
"""

import math

from tests.search.reference_run import (
    Outcome,
    Params,
    Run,
    Seed,
    World,
    twelve_digits,
)

from tts.search.thought import Fate, NodePath


def sample(params: Params, seed: Seed, world: World) -> Outcome:
    """greedy (n = 1), majority-vote (both not scored), best-of-n, weighted-best-of-n."""
    run = Run(params, seed, world)
    completed: list[NodePath] = []
    for index in range(params.n):
        completed.append(run.grow_whole((index,), params.scored))
    return run.outcome(completed, params.scored)


def adaptive_vote(params: Params, seed: Seed, world: World) -> Outcome:
    """adaptive-vote (not scored), weighted-adaptive-vote."""
    run = Run(params, seed, world)
    completed: list[NodePath] = []
    while len(completed) < params.n:
        for _ in range(min(params.batch, params.n - len(completed))):
            completed.append(run.grow_whole((len(completed),), params.scored))
        first, second = run.first_and_second(completed, params.scored)
        if params.threshold < 1 and confidence(first, second) >= params.threshold - 1e-9:
            break
    return run.outcome(completed, params.scored)


def confidence(first: float, second: float) -> float:
    """The share of the density of Beta(first + 1, second + 1) above 1/2, by Simpson's rule.

    With p = sin(t)^2 the density has no steep ends.
    """
    if first <= second:
        return 0.5

    def area(low: float, high: float, slices: int = 600) -> float:
        step = (high - low) / slices
        angles = [low + i * step for i in range(slices + 1)]
        heights = [
            abs(math.sin(t)) ** (2 * first + 1) * abs(math.cos(t)) ** (2 * second + 1)
            for t in angles
        ]
        inner = 4 * math.fsum(heights[1:-1:2]) + 2 * math.fsum(heights[2:-1:2])
        return step / 3 * (heights[0] + inner + heights[-1])

    above = area(math.pi / 4, math.pi / 2)
    return above / (area(0, math.pi / 4) + above)


def beam_search(params: Params, seed: Seed, world: World) -> Outcome:
    run = Run(params, seed, world)
    completed: list[NodePath] = []  # in order of completion
    firsts: list[NodePath] = [(index,) for index in range(params.n)]
    iteration = 0
    while True:
        iteration += 1
        active: list[NodePath] = []
        for path in run.ranked(run.grow(firsts, iteration)):
            if run.ended(path) or iteration == params.num_iterations:
                completed.append(path)
            else:
                active.append(path)

        if not active:
            break
        if len(completed) >= params.n and not params.sort_completed:
            break

        if params.filter_duplicates:
            distinct: list[NodePath] = []
            for path in active:
                if run.text(path) not in [run.text(better) for better in distinct]:
                    distinct.append(path)
        else:
            distinct = active
        kept = distinct[: params.n // params.beam_width]
        run.set_fates(active, Fate.PRUNED)
        run.set_fates(kept, Fate.EXPANDED)

        firsts = []
        for candidate in range(params.n):
            parent = kept[candidate % len(kept)]
            firsts.append((*parent, candidate // len(kept)))

    run.set_fates(active, Fate.PRUNED)
    if params.sort_completed:
        completed = run.ranked(completed)
    run.set_fates(completed, Fate.SURPLUS)
    return run.outcome(completed[: params.n])


def dvts(params: Params, seed: Seed, world: World) -> Outcome:
    run = Run(params, seed, world)
    width = params.beam_width
    completed: list[NodePath] = []
    for subtree in range(params.n // width):
        firsts: list[NodePath] = [(subtree * width + index,) for index in range(width)]
        iteration = 0
        while True:
            iteration += 1
            candidates = run.ranked(run.grow(firsts, iteration))
            choice = candidates[0]
            if (
                run.ended(choice)
                or "boxed{" in run.text(choice)
                or iteration == params.num_iterations
            ):
                break
            run.set_fates(candidates, Fate.PRUNED)
            run.set_fates([choice], Fate.EXPANDED)
            firsts = [(*choice, index) for index in range(width)]
        completed += candidates
    return run.outcome(completed)


def rebase(params: Params, seed: Seed, world: World) -> Outcome:
    run = Run(params, seed, world)
    completed: list[NodePath] = []
    firsts: list[NodePath] = [(index,) for index in range(params.n)]
    iteration = 0
    while True:
        iteration += 1
        active: list[NodePath] = []
        for path in run.ranked(run.grow(firsts, iteration)):
            if run.ended(path) or iteration == params.num_iterations:
                completed.append(path)
            else:
                active.append(path)
        if not active:
            break

        left = params.n - len(completed)
        firsts = []
        for rank, path in enumerate(active):
            # e^(s/T) over the sum, with both divided by e^(s/T): a small T cannot overflow.
            total = math.fsum(
                math.exp(
                    (run.path_score(other) - run.path_score(path)) / params.softmax_temperature
                )
                for other in active[rank:]
            )
            # Rounded, so that float noise above a whole number cannot add a child.
            children = math.ceil(round(left / total, 9))
            run.nodes[path].fate = Fate.EXPANDED if children > 0 else Fate.PRUNED
            firsts += [(*path, index) for index in range(children)]
            left -= children

    run.set_fates(active, Fate.PRUNED)
    return run.outcome(completed)


def particle_filtering(params: Params, seed: Seed, world: World) -> Outcome:
    run = Run(params, seed, world)
    n = params.n
    # A completed chain can stand in the list more than once, an active one cannot.
    particles: list[NodePath] = run.grow([(index,) for index in range(n)], iteration=1)
    log_weights = [0.0] * n
    iteration = 1
    while True:
        for index in range(n):
            score = min(max(run.path_score(particles[index]), 1e-4), 1 - 1e-4)
            log_weights[index] += math.log(score / (1 - score)) / params.weight_temperature

        if all(run.ended(path) for path in particles) or iteration == params.num_iterations:
            return run.outcome(particles)

        weights = [math.exp(log_weight - max(log_weights)) for log_weight in log_weights]
        effective = math.fsum(weights) ** 2 / math.fsum(weight**2 for weight in weights)
        copies = [1] * n
        if round(effective, 9) < params.ess_threshold * n:
            copies = systematic_draws(weights, seed((-1, iteration)) / 2**63)
            log_weights = [0.0] * n

        iteration += 1
        # What no copy of is drawn stays pruned.
        run.set_fates(particles, Fate.PRUNED)
        resampled: list[NodePath] = []
        for index, path in enumerate(particles):
            for copy in range(copies[index]):
                if run.ended(path):
                    run.nodes[path].fate = Fate.OPEN
                    resampled.append(path)
                else:
                    run.nodes[path].fate = Fate.EXPANDED
                    resampled.append(run.grow_candidate((*path, copy), iteration))
        particles = resampled


def systematic_draws(weights: list[float], u: float) -> list[int]:
    """How often each particle is drawn."""
    n = len(weights)
    draws = [0] * n
    for i in range(n):
        point = (u + i) / n
        for j in range(n):
            # The last share ends at 1, whatever the floats add up to.
            if j == n - 1 or math.fsum(weights[: j + 1]) / math.fsum(weights) > point:
                draws[j] += 1
                break
    return draws


def mcts(params: Params, seed: Seed, world: World) -> Outcome:
    run = Run(params, seed, world)
    children: dict[NodePath, list[NodePath]] = {(): []}
    iterations: dict[NodePath, int] = {(): 0}  # of a node: that in which it grew
    values: dict[NodePath, list[float]] = {}  # of a node: its own, and those of simulations
    completed: list[NodePath] = []
    ways: list[list[NodePath]] = []  # of the simulations that have yet to walk in this wave
    waiters: list[list[NodePath]] = []  # of those that wait for a new child, in their order
    scored = [0.5, 1.0]  # sums of the scores of new children and of their parents
    begun = 0

    def is_end(path: NodePath) -> bool:
        return run.ended(path) or iterations[path] == params.num_iterations

    def worth(mean: float, count: float, visits: float) -> float:
        return twelve_digits(mean + params.exploration * math.sqrt(visits) / (1 + count))

    def choice(parent: NodePath) -> NodePath | None:
        """The child to go to; None for a new one.

        A simulation under way counts as a value of 0 where it has gone, and as a child where it
        waits for one.
        """
        waiting = sum(parent == way[-1] for way in waiters)
        under_way = [*ways, *waiters]
        siblings = children[parent]
        count = {p: len(values[p]) + sum(p in way for way in under_way) for p in siblings}
        visits = sum(count.values()) + waiting
        possible = [path for path in siblings if path not in completed]
        worths = {p: worth(math.fsum(values[p]) / count[p], count[p], visits) for p in possible}
        best = max(worths.values(), default=None)
        if best is None:
            return None
        if len(siblings) + waiting < params.width:
            above = run.path_score(parent) if parent else 1.0
            prospect = twelve_digits(scored[0] / scored[1]) * above
            if worth(prospect, len(siblings) + waiting, visits) > best:
                return None
        equals = [path for path in possible if worths[path] == best]
        last_score = max(run.nodes[path].score for path in equals)
        return min(path for path in equals if run.nodes[path].score == last_score)

    def walk(way: list[NodePath]) -> None:
        while child := choice(way[-1]):
            way.append(child)
            if is_end(child):
                completed.append(child)
                for path in way[1:]:
                    values[path].append(run.path_score(child))
                return
        waiters.append(way)

    while True:
        walking = waiters
        waiters = []
        while walking:
            ways = walking[1:]
            walk(walking.pop(0))
        ways = []
        while len(waiters) < params.parallel and begun < params.n:
            begun += 1
            walk([()])
        if not waiters:
            break
        for parent in dict.fromkeys(way[-1] for way in waiters):
            first = len(children[parent])
            for index in range(first, first + sum(way[-1] == parent for way in waiters)):
                iteration = iterations[parent] + 1
                path = run.grow_candidate((*parent, index), iteration)
                children[parent].append(path)
                children[path], iterations[path] = [], iteration
                values[path] = [run.path_score(path)]
                above = run.path_score(parent) if parent else 1.0
                scored[0] = twelve_digits(scored[0] + min(values[path][0], above))
                scored[1] = twelve_digits(scored[1] + above)

    for path in values:
        if children[path]:
            run.nodes[path].fate = Fate.EXPANDED
        else:
            run.nodes[path].fate = Fate.SURPLUS if is_end(path) else Fate.PRUNED
    return run.outcome(completed)
