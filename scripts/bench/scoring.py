"""Score given chains with `Scorer`, beside transformers in batches and a server by URL.

Chains are solutions of demo problems, half of them with a mistake. transformers computes each chain
once where its dialogues extend one another, and reads all of its scores; else each dialogue, in
padded batches of equal lengths. All get the same token ids and must agree on the scores. Rounds
take turns; a ratio is of one round.

    scripts/run bench.scoring
    scripts/run bench.scoring --deployment smollm2-135m-cpu --steps 500
    scripts/run bench.scoring --url http://127.0.0.1:8001
"""

from __future__ import annotations

import argparse
import asyncio
import random
import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import psutil
import torch
from rich.console import Console
from torch.nn.utils.rnn import pad_sequence
from transformers import AutoModelForCausalLM

from scripts.bench.common import cpu_s, family_of, machine, spread_of, table_of
from scripts.training.solutions import render_final, render_step
from tts.build.inputs import EngineInputs
from tts.build.spec import Deployment
from tts.datasets.demo import demo_problems, read_question
from tts.endpoints.base import ScoreCall
from tts.problem import Problem
from tts.session import AsyncSession
from tts.session.plan import load_checked
from tts.session.scoring import NoGenerator, Scorer, Solution

BATCH_TOKENS = 4096
"""Tokens of a padded batch for transformers, which is as fast with more."""
TOLERANCE = 2e-3


def solutions(steps: int, each: int, seed: int) -> list[Solution]:
    """Solutions with `steps` steps in all, `each` of a problem."""
    rng, chains, count = random.Random(seed), list[Solution](), 0
    for problem in demo_problems(steps, seed):
        chain = read_question(problem.question)
        assert chain is not None
        for _ in range(each):
            values, off = chain.values(), 0
            wrong = rng.randrange(2 * len(chain.ops))
            texts = []
            for place, (op, operand) in enumerate(chain.ops):
                before = values[place] + off
                off += rng.randint(1, 9) if place == wrong else 0
                texts.append(render_step(place + 1, op, before, operand, values[place + 1] + off))
            texts.append(render_final(values[-1] + off))
            chains.append((Problem(problem.id, problem.question), texts))
            count += len(texts)
            if count >= steps:
                return chains
    return chains


class Transformers:
    """The verifier's scores by transformers: label logits, read where each dialogue ends."""

    def __init__(self, deployment: Deployment) -> None:
        inputs = EngineInputs(deployment, "verifier")
        self.model: Any = AutoModelForCausalLM.from_pretrained(inputs.folder, dtype=torch.float32)
        self.labels = inputs.label_weights
        if not self.labels or set(self.labels.values()) != {0.0, 1.0}:
            raise SystemExit("error: this program reads two labels, and the verifier has others")

    def score(self, chains: Sequence[Sequence[ScoreCall]]) -> list[list[float]]:
        """The scores of each chain's requests."""
        texts: list[tuple[int, torch.Tensor, list[tuple[int, int]]]] = []
        for number, calls in enumerate(chains):
            places: list[tuple[int, int]] = []
            for place, call in enumerate(calls):
                places.append((place, len(call.input_ids) - 1))
                after = calls[place + 1].input_ids if place + 1 < len(calls) else ()
                if not np.array_equal(after[: len(call.input_ids)], call.input_ids):
                    texts.append((number, torch.from_numpy(call.input_ids).long(), places))
                    places = []
        texts.sort(key=lambda text: -len(text[1]))
        scores = [[0.0] * len(calls) for calls in chains]
        ids, weights = [*self.labels], torch.tensor([*self.labels.values()])
        with torch.inference_mode():
            while texts:
                size = max(1, BATCH_TOKENS // len(texts[0][1]))
                batch, texts = texts[:size], texts[size:]
                tokens = pad_sequence([text for _, text, _ in batch], batch_first=True)
                mask = pad_sequence([torch.ones_like(text) for _, text, _ in batch], True)
                hidden = self.model.model(tokens, attention_mask=mask).last_hidden_state
                rows = [(row, end) for row, text in enumerate(batch) for _, end in text[2]]
                ends = hidden[[row for row, _ in rows], [end for _, end in rows]]
                logits = ends @ self.model.get_output_embeddings().weight[ids].T
                values = (logits.softmax(-1) @ weights).tolist()
                places_of = ((number, place) for number, _, ends in batch for place, _ in ends)
                for (number, place), value in zip(places_of, values, strict=True):
                    scores[number][place] = value
        return scores


async def session_scores(
    session: AsyncSession, chains: Sequence[Solution]
) -> list[tuple[float | None, ...]]:
    """The scores of every chain by the session's verifier."""
    scorer = Scorer(session.models, session.endpoints[1], answers_only=False)
    async with session.work():
        return [each.scores for each in await scorer.score(chains)]


def by_url(deployment: Deployment, url: str) -> Deployment:
    """A deployment whose verifier is on a server."""
    data = deployment.model_dump(mode="json", exclude_unset=True)
    common = ("max_seq_len", "format", "labels", "prompt", "in_flight_tokens")
    verifier = {name: value for name, value in data["verifier"].items() if name in common}
    folder = str(EngineInputs(deployment, "verifier").folder)
    data["verifier"] = {**verifier, "url": url, "tokenizer": folder}
    return Deployment.model_validate(data)


async def measure(options: argparse.Namespace) -> None:
    """Take turns, compare the scores, print the table."""
    deployment = load_checked(options.deployment)
    chains = solutions(options.steps, options.candidates, options.seed)
    reference = Transformers(deployment)
    console, family = Console(), family_of(psutil.Process())
    async with AsyncSession(deployment, generator=NoGenerator(), server="embedded") as session:
        scorer = Scorer(session.models, session.endpoints[1], answers_only=False)
        calls = [scorer.calls(chain) for chain in chains]
        count = sum(map(len, calls))
        ways: dict[str, Callable[[], Any]] = {
            "tts score": lambda: session_scores(session, chains),
            "transformers": lambda: asyncio.to_thread(reference.score, calls),
        }
        if options.url:
            other = AsyncSession(by_url(deployment, options.url), generator=NoGenerator())
            await other.__aenter__()
            ways["by URL"] = lambda: session_scores(other, chains)
        rates: dict[str, list[float]] = {name: [] for name in ways}
        seconds: dict[str, list[float]] = {name: [] for name in ways}
        for turn in range(options.rounds):
            scores = {}
            for name in [*ways][turn % len(ways) :] + [*ways][: turn % len(ways)]:
                await session.reset_prefix_caches()
                family = family_of(psutil.Process())
                began, cpu_before = time.perf_counter(), cpu_s(family)
                scores[name] = await ways[name]()
                rates[name].append(count / (time.perf_counter() - began))
                seconds[name].append(1000 * (cpu_s(family) - cpu_before) / count)
            for name, values in scores.items():
                pairs = zip(values, scores["transformers"], strict=True)
                worst = max(
                    abs((mine or 0.0) - theirs)
                    for one, two in pairs
                    for mine, theirs in zip(one, two, strict=True)
                )
                console.print(f"round {turn + 1}, {name}: at most {worst:.1e} off")
                if name == "tts score" and worst > TOLERANCE:
                    raise SystemExit("error: the scores differ")
        if options.url:
            await other.__aexit__(None, None, None)
    table = table_of(
        f"{count:,} steps of {len(chains):,} chains, {deployment.name}, {options.rounds} rounds: "
        "medians (ranges)",
        *("", "steps/s", "CPU s per 1,000 steps", "tts score is so many times as fast"),
        left_aligned=("",),
    )
    for name, each in rates.items():
        ratios = [mine / theirs for mine, theirs in zip(rates["tts score"], each, strict=True)]
        times = spread_of(ratios, 2) if name != "tts score" else ""
        table.add_row(name, spread_of(each, 0), spread_of(seconds[name], 2), times)
    console.print(table)
    console.print(machine(), f"torch {torch.__version__}", markup=False)


def main() -> None:
    """Measure what the command line asks for."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--deployment", default="demo")
    parser.add_argument("--steps", type=int, default=10_000)
    parser.add_argument("--candidates", type=int, default=4, help="solutions of a problem")
    parser.add_argument("--seed", type=int, default=17)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--url", help="a server of the same verifier, such as vLLM")
    asyncio.run(measure(parser.parse_args()))


if __name__ == "__main__":
    main()
