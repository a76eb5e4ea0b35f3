"""A quick measurement of a pair: the five methods on the same problems, with the same seeds.

It follows the product's definitions (beam search as in search-and-learn, aggregation "last") but
none of its code, so that a pair can be judged while it is being made.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise

import torch

from tts.datasets.chains import Chain, ChainTask, level_of

from .decode import sample, score
from .model import Llama
from .text import Codec


@dataclass
class Attempt:
    """A (partial) solution: the token ids of its steps, delimiters included."""

    steps: list[list[int]] = field(default_factory=list)
    score: float = 0.0

    def ids(self) -> list[int]:
        """All ids, in order."""
        return [i for step in self.steps for i in step]

    def done(self, codec: Codec) -> bool:
        """Whether the last step ends the solution: it has no delimiter after it."""
        return bool(self.steps) and self.steps[-1][-1] != codec.delimiter


def split_steps(codec: Codec, ids: Sequence[int]) -> list[list[int]]:
    """Cut generated ids after each delimiter."""
    steps: list[list[int]] = [[]]
    for i in ids:
        steps[-1].append(i)
        if i == codec.delimiter:
            steps.append([])
    return steps if steps[-1] else steps[:-1]


def answer_of(codec: Codec, attempt: Attempt) -> int | None:
    """The whole number in the box of the last step, if there is one."""
    text = codec.decode(attempt.steps[-1])
    _, found, rest = text.rpartition("\\boxed{")
    number = rest.partition("}")[0]
    return int(number) if found and number.isascii() and number.isdigit() else None


def attempt_texts(codec: Codec, attempt: Attempt) -> list[str]:
    """The texts of the steps without delimiters and end of turn."""
    drop = {codec.delimiter, codec.eot}
    return [codec.decode([i for i in step if i not in drop]) for step in attempt.steps]


def attempt_dialogue(codec: Codec, question: str, attempt: Attempt) -> tuple[list[int], list[int]]:
    """The verifier's dialogue of an attempt, and the positions before each label."""
    ids = [codec.bos, codec.user, *codec.question(question), codec.space]
    positions = []
    for i, step in enumerate(attempt.steps):
        if i:
            ids += [codec.plus, codec.eot, codec.user]
        body = step[:-1] if step[-1] in (codec.delimiter, codec.eot) else step
        ids += [*body, codec.eot, codec.assistant]
        positions.append(len(ids) - 1)
    return ids[:512], [p for p in positions if p < 512]


@dataclass
class Pair:
    """The two models under measurement."""

    codec: Codec
    generator: Llama
    verifier: Llama | None
    temperature: float = 0.8

    def complete(
        self,
        questions: Sequence[str],
        attempts: Sequence[Attempt],
        *,
        greedy: bool,
        whole: bool,
        rng: torch.Generator,
    ) -> list[list[int]]:
        """Continue each attempt by one step, or to its end (``whole``)."""
        prompts = [self.codec.prompt(q) + a.ids() for q, a in zip(questions, attempts, strict=True)]
        stop = {self.codec.eot} if whole else {self.codec.eot, self.codec.delimiter}
        temperature = 0.0 if greedy else self.temperature
        return sample(self.generator, prompts, stop, temperature, rng, max_new=200 if whole else 40)

    def last_scores(self, questions: Sequence[str], attempts: Sequence[Attempt]) -> list[float]:
        """The score of the last step of each attempt; equal dialogues are scored once."""
        assert self.verifier is not None
        asked = [
            attempt_dialogue(self.codec, q, a) for q, a in zip(questions, attempts, strict=True)
        ]
        unique = {tuple(ids): at[-1:] for ids, at in asked}
        labels = (self.codec.plus, self.codec.minus)
        found = score(self.verifier, [list(k) for k in unique], list(unique.values()), labels)
        scores = {key: value[0] for key, value in zip(unique, found, strict=True)}
        return [scores[tuple(ids)] for ids, _ in asked]


def sampled(
    pair: Pair, questions: Sequence[str], n: int, rng: torch.Generator
) -> list[list[Attempt]]:
    """Draw n whole samples per question."""
    repeated = [q for q in questions for _ in range(n)]
    outs = pair.complete(repeated, [Attempt() for _ in repeated], greedy=False, whole=True, rng=rng)
    attempts = [Attempt(split_steps(pair.codec, ids)) for ids in outs]
    return [attempts[i : i + n] for i in range(0, len(attempts), n)]


def beams(
    pair: Pair,
    questions: Sequence[str],
    n: int,
    width: int,
    rng: torch.Generator,
    iterations: int = 40,
) -> list[list[Attempt]]:
    """Beam search: n // width beams are kept per iteration, n completions come out."""
    active: list[list[Attempt]] = [[Attempt()] for _ in questions]
    completed: list[list[Attempt]] = [[] for _ in questions]
    for _ in range(iterations):
        work = [
            (i, beam)
            for i, kept in enumerate(active)
            if kept and len(completed[i]) < n
            for beam in (kept * n)[:n]
        ]
        if not work:
            break
        asked = [questions[i] for i, _ in work]
        outs = pair.complete(asked, [b for _, b in work], greedy=False, whole=False, rng=rng)
        children = [Attempt([*b.steps, ids]) for (_, b), ids in zip(work, outs, strict=True)]
        for child, value in zip(children, pair.last_scores(asked, children), strict=True):
            child.score = round(value, 4)
        fresh: list[list[Attempt]] = [[] for _ in questions]
        for (i, _), child in zip(work, children, strict=True):
            (completed if child.done(pair.codec) else fresh)[i].append(child)
        active = [sorted(c, key=lambda a: -a.score)[: n // width] for c in fresh]
    return [sorted(c, key=lambda a: -a.score)[:n] for c in completed]


def vote(codec: Codec, attempts: Sequence[Attempt], weighted: bool) -> int | None:
    """The answer with most votes, or with the highest sum of scores; the first among equals."""
    votes: dict[int, float] = {}
    for attempt in attempts:
        answer = answer_of(codec, attempt)
        if answer is not None:
            votes[answer] = votes.get(answer, 0.0) + (attempt.score if weighted else 1.0)
    return max(votes, key=lambda a: votes[a]) if votes else None


def best(codec: Codec, attempts: Sequence[Attempt]) -> int | None:
    """The answer of the attempt with the highest score."""
    return answer_of(codec, max(attempts, key=lambda a: a.score)) if attempts else None


Right = dict[str, list[bool]]


def measure(
    pair: Pair, task: ChainTask, chains: Sequence[Chain], n: int, width: int, seed: int
) -> Right:
    """Method -> whether each problem was solved. Without a verifier: greedy, majority, pass."""
    codec = pair.codec
    questions = [task.question_of(chain) for chain in chains]
    rng = torch.Generator().manual_seed(seed)
    once = pair.complete(
        questions, [Attempt() for _ in questions], greedy=True, whole=True, rng=rng
    )
    greedy = [Attempt(split_steps(codec, ids)) for ids in once]
    samples = sampled(pair, questions, n, rng)
    right: dict[str, list[int | None]] = {
        "greedy": [answer_of(codec, a) for a in greedy],
        "majority": [vote(codec, a, weighted=False) for a in samples],
    }
    if pair.verifier is not None:
        flat = [(q, a) for q, group in zip(questions, samples, strict=True) for a in group]
        scores = pair.last_scores([q for q, _ in flat], [a for _, a in flat])
        for (_, attempt), value in zip(flat, scores, strict=True):
            attempt.score = round(value, 4)
        right["best-of-n"] = [best(codec, a) for a in samples]
        right["weighted best-of-n"] = [vote(codec, a, weighted=True) for a in samples]
        found = beams(pair, questions, n, width, rng)
        right["beam search (best)"] = [best(codec, a) for a in found]
        right["beam search (weighted)"] = [vote(codec, a, weighted=True) for a in found]
    out = {
        method: [a == chain.answer for a, chain in zip(answers, chains, strict=True)]
        for method, answers in right.items()
    }
    out["pass@n"] = [
        any(answer_of(codec, a) == chain.answer for a in group)
        for group, chain in zip(samples, chains, strict=True)
    ]
    return out


def accuracy(pair: Pair, task: ChainTask, chains: Sequence[Chain], n: int, seed: int) -> float:
    """Share of right answers among n plain samples per problem."""
    questions = [task.question_of(chain) for chain in chains]
    groups = sampled(pair, questions, n, torch.Generator().manual_seed(seed))
    right = [
        answer_of(pair.codec, attempt) == chain.answer
        for chain, group in zip(chains, groups, strict=True)
        for attempt in group
    ]
    return sum(right) / len(right)


def difference(better: Sequence[bool], worse: Sequence[bool]) -> tuple[float, float]:
    """Mean paired difference and its standard error, in points."""
    gaps = [int(a) - int(b) for a, b in zip(better, worse, strict=True)]
    mean = sum(gaps) / len(gaps)
    variance = sum((g - mean) ** 2 for g in gaps) / (len(gaps) - 1)
    return 100 * mean, 100 * (variance / len(gaps)) ** 0.5


def table(right: Right, chains: Sequence[Chain]) -> str:
    """Markdown: accuracy in % per method, overall and per level."""
    levels = [level_of(len(chain.ops)) for chain in chains]
    shown = sorted(set(levels))
    lines = [
        "| method | all | " + " | ".join(f"L{level}" for level in shown) + " |",
        "|---|" + "---|" * (len(shown) + 1),
    ]
    for method, flags in right.items():
        cells = [f"{100 * sum(flags) / len(flags):.1f}"]
        for level in shown:
            part = [f for f, at in zip(flags, levels, strict=True) if at == level]
            cells.append(f"{100 * sum(part) / len(part):.0f}")
        lines.append(f"| {method} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def gaps(right: Right) -> str:
    """Markdown: paired differences between neighbours, with standard errors."""
    order = ["beam search (weighted)", "weighted best-of-n", "majority", "greedy"]
    lines = ["| better | worse | difference | standard error |", "|---|---|---|---|"]
    for above, below in pairwise(order):
        if above in right:
            mean, error = difference(right[above], right[below])
            lines.append(f"| {above} | {below} | {mean:.1f} | {error:.1f} |")
    return "\n".join(lines)
