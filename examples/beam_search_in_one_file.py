"""Beam search in one file: what `--strategy beam-search --schedule lockstep` does, and no more.

    pip install '.[cpu]' && tts build-engines demo
    python examples/beam_search_in_one_file.py

`beam_search` is the whole algorithm, over two functions: one writes steps, one judges them. All is
generated, then all is scored, then the best go on. `on_endpoints` makes these functions of any
generator and verifier. The toolkit's own search sends the same requests in a better order, leaves
out scores that cannot matter and begins what will probably be asked for; its tree is the same, node
for node. Not here: answers in a form that is prescribed, deadlines, budgets, logs.
"""

from __future__ import annotations

import asyncio
import hashlib
import math
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from functools import partial

from tts import Session
from tts.build.spec import load_deployment
from tts.datasets.load import load_problems
from tts.endpoints.base import GenerateCall, Generator, Verifier
from tts.fleet.embedded import embedded_engines
from tts.fleet.endpoints import endpoints_on
from tts.prompting import Context, Models
from tts.search import BeamSearchConfig, Fate, NodePath, SeedOf, Stop, Thought, node_seed

Write = Callable[[NodePath, bool], Awaitable[Sequence[Thought]]]
"""The step of a new node, or the steps of the whole chain that begins there."""
Judge = Callable[[NodePath], Awaitable[float]]
"""The score of a node's step, after all steps before it."""


@dataclass
class Node:
    """A step, and what became of it: pruned, unless something better is said."""

    thought: Thought
    score: float | None = None
    fate: Fate = Fate.PRUNED


@dataclass
class BeamTree:
    """The nodes by path: (2, 0) is the first child of the third node."""

    config: BeamSearchConfig
    nodes: dict[NodePath, Node] = field(default_factory=dict)
    completions: list[NodePath] = field(default_factory=list)
    """The ends of the n chains that come out, the best first."""

    def chain(self, path: NodePath) -> list[Node]:
        """The nodes from the first step to this one."""
        return [self.nodes[path[:depth]] for depth in range(1, len(path) + 1)]

    def text(self, path: NodePath) -> str:
        """What the chain says."""
        return "".join(node.thought.text for node in self.chain(path))

    def score(self, path: NodePath) -> float:
        """The scores of a chain as one number; a step that says nothing adds none."""
        chain = self.chain(path)
        how = self.config.agg_strategy
        if how == "last":
            return [node.score for node in chain if node.score is not None][-1]
        texts: tuple[str, ...] = ()
        scores: dict[tuple[str, ...], float] = {}
        for node in chain:
            if node.thought.text.strip():
                texts = (*texts, node.thought.text)
            if node.score is not None:
                scores.setdefault(texts, node.score)
        if len(scores) > 1:
            scores.pop((), None)
        if how == "min":
            return min(scores.values())
        if how == "prod":
            return float(f"{math.prod(scores.values()):.12g}")
        return float(f"{math.fsum(scores.values()) / len(scores):.12g}")

    def rank(self, path: NodePath) -> tuple[float, float, NodePath]:
        """The best chain first, then the best last step, then the smallest path."""
        return -self.score(path), -(self.nodes[path].score or 0.0), path

    def digest(self) -> str:
        """One hash over paths, tokens, stop reasons and fates."""
        lines = hashlib.sha256()
        for path, node in sorted(self.nodes.items()):
            ids = ",".join(map(str, node.thought.token_ids))
            name = ".".join(map(str, path))
            lines.update(f"{name}|{ids}|{node.thought.stop}|{node.fate}\n".encode())
        return lines.hexdigest()


async def beam_search(config: BeamSearchConfig, write: Write, judge: Judge) -> BeamTree:
    """Search until n chains are complete, or with `sort_completed` until nothing can go on."""
    tree = BeamTree(config)
    completed: list[NodePath] = []
    starts: list[NodePath] = [(child,) for child in range(config.n)]
    iteration = 0
    while starts:
        iteration += 1
        last = iteration == config.num_iterations
        whole = last and config.finish == "eos"
        every_step = whole and config.agg_strategy != "last"
        chains = await asyncio.gather(*(write(start, whole) for start in starts))
        ends, judged = [], []
        for start, thoughts in zip(starts, chains, strict=True):
            steps = [start + (0,) * depth for depth in range(len(thoughts))]
            for path, thought in zip(steps, thoughts, strict=True):
                tree.nodes[path] = Node(thought, fate=Fate.EXPANDED)
            tree.nodes[steps[-1]].fate = Fate.PRUNED
            ends.append(steps[-1])
            judged += steps if every_step else steps[-1:]
        scores = await asyncio.gather(*map(judge, judged))
        for path, score in zip(judged, scores, strict=True):
            tree.nodes[path].score = round(score / 1e-4) * 1e-4
        ends.sort(key=tree.rank)
        active = [end for end in ends if not last and tree.nodes[end].thought.goes_on]
        completed += [end for end in ends if end not in active]
        beams: list[NodePath] = []
        if config.sort_completed or len(completed) < config.n:
            beams = best(tree, active, config.n // config.beam_width)
        for path in beams:
            tree.nodes[path].fate = Fate.EXPANDED
        starts = [  # n children, dealt out to the beams in turn, the best first
            (*path, child)
            for place, path in enumerate(beams)
            for child in range(len(range(place, config.n, len(beams))))
        ]
    if config.sort_completed:
        completed.sort(key=tree.rank)
    for path in completed:
        tree.nodes[path].fate = Fate.SURPLUS
    tree.completions = sorted(completed[: config.n], key=tree.rank)
    for path in tree.completions:
        tree.nodes[path].fate = Fate.COMPLETED
    return tree


def best(tree: BeamTree, ranked: Sequence[NodePath], width: int) -> list[NodePath]:
    """The first so many beams; with `filter_duplicates`, those of different texts."""
    beams: dict[str | NodePath, NodePath] = {}
    for path in ranked:
        beams.setdefault(tree.text(path) if tree.config.filter_duplicates else path, path)
    return list(beams.values())[:width]


def on_endpoints(
    config: BeamSearchConfig, seed: SeedOf, context: Context, engines: tuple[Generator, Verifier]
) -> tuple[Write, Judge]:
    """The two functions on two engines; the context keeps the token ids of a problem's nodes."""
    generator, verifier = engines
    scores: dict[bytes, float] = {}  # chains that read the same are scored once

    async def write(path: NodePath, whole: bool) -> Sequence[Thought]:
        limit = min(config.max_tokens, context.room(path[:-1]))
        if limit <= 0:  # the engine's context is full
            thoughts: tuple[Thought, ...] = (Thought((), "", Stop.LENGTH),)
        else:
            ids = context.generator_ids(path[:-1])
            how = (seed(path), config.temperature, config.top_p)
            reply = await generator.generate(GenerateCall(ids, limit, *how, not whole))
            thoughts = context.models.thoughts(reply, truncated=len(reply) >= limit, whole=whole)
        for depth, thought in enumerate(thoughts):
            context.add(path + (0,) * depth, thought)
        return thoughts

    async def judge(path: NodePath) -> float:
        if not context.can_be_scored(path):
            return 0.0
        key = context.score_key(path)
        if key not in scores:
            scores.setdefault(key, (await verifier.score(context.score_call(path))).score)
        return scores[key]

    return write, judge


async def main() -> None:
    """Solve problems of the demo on its two engines, and once more with the toolkit's search."""
    problems = load_problems("demo", limit=4)
    config, deployment = BeamSearchConfig(n=8), load_deployment("demo")
    models = Models.load(deployment)
    async with embedded_engines(deployment, print, lambda loading: None) as (connection, _):
        pair = generator, verifier = endpoints_on(models, connection)
        async with Session.open_async(deployment, generator=generator, verifier=verifier) as ours:
            for problem in problems:
                context, seed = Context.of(models, problem), partial(node_seed, 0, problem.id)
                tree = await beam_search(config, *on_endpoints(config, seed, context, pair))
                same = tree.digest() == (await ours.solve(problem, strategy=config)).tree_digest
                print(f"{problem.question}\n  {tree.text(tree.completions[0])!r}")
                print(f"  the toolkit's search has the same tree: {same}")


if __name__ == "__main__":
    asyncio.run(main())
