"""Every strategy of docs/strategies.md once more, in the plainest lockstep way.

Written from the definitions alone, so that it checks the search core independently: one candidate
after the other, no events, no order to get wrong. To be read next to the definitions.
"""

import math

from tests.search.reference_run import Outcome, Params, Run, Seed, World

from tts.search.thought import Fate, NodePath


def sample(params: Params, seed: Seed, world: World) -> Outcome:
    """cot (n = 1), self-consistency (both not scored), best-of-n, weighted-best-of-n."""
    run = Run(params, seed, world)
    completed: list[NodePath] = []
    for index in range(params.n):
        completed.append(run.grow_whole((index,), params.scored))
        if run.may_stop(completed, params.scored):
            break
    return run.outcome(completed, params.scored)


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
        if run.may_stop(completed):
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
        if run.may_stop(completed):
            break
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
        if run.may_stop(completed):
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
