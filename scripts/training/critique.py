"""Train the bundled verifier that writes, from demo-thinking's weights, for the demo's generator.

    scripts/run training.critique --out engines/checkpoints/demo-critic

It reads a problem, the steps of a solution so far and one more, and writes what that one should be
with its sum worked out, what it says, and a verdict:

    Step 2 should be 37 + 58: 87 + 8 = 95. It says Step 2: Adding 58 gives 85.
    Verdict:
    wrong

It learns from made-up attempts and from the demo generator's own, up to the first wrong step: one
that calculates rightly on a wrong number is not its matter. Seeded, but not bitwise repeatable:
thread counts and torch versions change the sums.

Needs torch, transformers and the installed project.
"""

from __future__ import annotations

import random
import re
from collections.abc import Sequence
from pathlib import Path

import torch
from tokenizers import Tokenizer
from torch import Tensor
from transformers import LlamaForCausalLM

from scripts.training import models, text
from scripts.training.data import Row, Trace, learned
from scripts.training.demo_models import MIX, synthetic
from scripts.training.solutions import STEP_DELIMITER, right_steps, training_chain, worked
from scripts.training.thinking import SHAPE
from scripts.training.training import Schedule
from tts.datasets.demo import DEMO, Chain

GENERATOR, THINKING = (Path("engines/checkpoints", f"demo-{n}") for n in ("generator", "thinking"))
ATTEMPTED, ATTEMPTS_EACH = 3000, 3
HELD_OUT, HELD_OUT_SEED = 200, 43
ROWS = 64
_FINAL = re.compile(r"Therefore, the final answer is: \$\\boxed\{(\d+)\}\$\. .*")


def user_turn(question: str, steps: Sequence[str], between: str = STEP_DELIMITER) -> str:
    """What it is asked with: engines/deployments/prompts/demo-critique.txt, filled in."""
    return STEP_DELIMITER.join([question, between.join(steps[:-1]), steps[-1]])


def critique(chain: Chain, index: int, step: str) -> str:
    """What to write of a step, given that the steps before it are right."""
    right = step in right_steps(chain, index)
    if index < len(chain.ops):
        (op, b), (a, c) = chain.ops[index], chain.values()[index : index + 2]
        should = f"Step {index + 1} should be {worked(op, a, b, c)}."
    else:
        should = f"The answer should be {chain.answer}."
    says = _FINAL.sub(r"answer \1", step).removeprefix("## ")
    return f"{should} It says {says}.\nVerdict:\n{'right' if right else 'wrong'}"


def judged(rng: random.Random, trace: Trace) -> tuple[str, str]:
    """The user turn and the critique of one of an attempt's steps, often of the first wrong one.

    The steps before it stand in paragraphs or in lines, so that a prompt may do either.
    """
    count = min(trace.first_wrong() + 1, len(trace.steps))
    end = count if rng.random() < 0.5 else rng.randint(1, count)
    steps = trace.steps[:end]
    turn = user_turn(trace.question, steps, rng.choice(("\n", STEP_DELIMITER)))
    if rng.random() < 0.5:
        turn = turn.replace(2 * STEP_DELIMITER, STEP_DELIMITER)  # nothing before a first step
    return turn, critique(trace.chain, end - 1, steps[-1])


def made_up(rng: random.Random) -> Trace:
    """An attempt at a training problem, as the demo verifier learns from."""
    return synthetic(rng, training_chain(DEMO, rng, rng.randint(2, 10)), DEMO, MIX)


def own_attempts(rng: random.Random, chains: Sequence[Chain]) -> list[Trace]:
    """The demo generator's attempts at some chains; torch's seed draws them."""
    codec = text.Codec(Tokenizer.from_file(str(GENERATOR / "tokenizer.json")))
    model = LlamaForCausalLM.from_pretrained(GENERATOR, dtype=torch.float32).eval()
    problems = [(chain, text.random_question(rng, chain)) for chain in chains]
    return models.attempts(model, codec, problems, ATTEMPTS_EACH)


def as_thinking(tokenizer: Tokenizer) -> dict[str, Tensor]:
    """The weights of demo-thinking, which works sums out alike, for the tokens of a tokenizer."""
    weights = LlamaForCausalLM.from_pretrained(THINKING, dtype=torch.float32).state_dict()
    before = Tokenizer.from_file(str(THINKING / "tokenizer.json"))
    weights_before = weights["model.embed_tokens.weight"]
    rows = torch.randn_like(weights_before) * weights_before.std()
    for token, at in tokenizer.get_vocab().items():
        if (was := before.token_to_id(token)) is not None:
            rows[at] = weights_before[was]
    new_weights: dict[str, torch.Tensor] = weights | {
        "model.embed_tokens.weight": rows,
        "lm_head.weight": rows,
    }
    return new_weights


def judge(model: LlamaForCausalLM, codec: text.Codec, traces: Sequence[Trace]) -> None:
    """Print what it says of the steps of some attempts, up to the first wrong one of each."""
    steps = [
        (user_turn(trace.question, trace.steps[: end + 1]), end < trace.first_wrong())
        for trace in traces
        for end in range(min(trace.first_wrong() + 1, len(trace.steps)))
    ]
    critiques = models.sampled(model, codec, [turn for turn, _ in steps], 1, 0.0, tokens=48)
    for name, kind in (("right", True), ("first wrong", False)):
        verdicts = [
            texts[0][-1].rpartition("\n")[2]
            for texts, (_, right) in zip(critiques, steps, strict=True)
            if right == kind
        ]
        shares = [f"{verdicts.count(v) / len(verdicts):.1%} {v}" for v in ("right", "wrong")]
        print(f"of {len(verdicts):,} {name} steps it calls {' and '.join(shares)}")


def make_critic(seed: int, schedule: Schedule) -> tuple[LlamaForCausalLM, text.Codec]:
    """Learn to write critiques."""
    rng = random.Random(f"critique/{seed}")
    tokenizer = text.train_tokenizer(
        DEMO, seed, sample_texts=lambda: list(judged(rng, made_up(rng)))
    )
    codec = text.Codec(tokenizer)
    torch.manual_seed(seed)
    chains = [training_chain(DEMO, rng, rng.randint(2, 10)) for _ in range(ATTEMPTED)]
    own = own_attempts(rng, chains)

    def rows(step: int) -> list[Row]:
        """Rows of about one length, to pad little."""
        rng = random.Random(f"critique/{seed}/{step}")
        examples = [
            judged(rng, made_up(rng) if rng.random() < 0.5 else rng.choice(own))
            for _ in range(4 * ROWS)
        ]
        at = rng.randrange(4) * ROWS
        return [
            learned(codec.prompt(turn), [*codec.question(text), codec.eot])
            for turn, text in sorted(examples, key=lambda pair: len(pair[0]))[at : at + ROWS]
        ]

    model = models.train_language_model(
        "critic", SHAPE, schedule, seed, rows, weights=as_thinking(tokenizer)
    )
    judge(model, codec, own_attempts(rng, DEMO.held_out_chains(HELD_OUT, HELD_OUT_SEED)))
    return model, codec


if __name__ == "__main__":
    models.main(__doc__, make_critic, Schedule(steps=1900, rate=1e-3, floor=0.03, average=0.97))
