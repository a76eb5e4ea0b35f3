"""Train the bundled demo pair, or another pair of its kind, from scratch.

    scripts/run training.demo_models --out engines/checkpoints --work runs/demo-training
    scripts/run training.demo_models --pair remainders --out OUT --work WORK
    scripts/run training.demo_models --pair remainders --work WORK --stage problems

The pairs are in `recipes`. Everything is synthetic and made on the fly from the seed (see
tts.datasets.demo). Each stage keeps its result in the work folder and is skipped when it is
there. Runs are seeded but not bitwise repeatable: thread counts and torch versions change the sums.

Stages: tokenizer, generator, samples (of the trained generator, checked exactly), trunk (a language
model of right solutions, the verifier's beginning), grow (more layers), detect (find wrong tokens
and steps), judge and refine (judge the generator's own solutions, two rounds), export, problems
(held-out ones, for `tts bench --dataset`: none of them was trained on).

Needs torch, transformers and the installed project.
"""

from __future__ import annotations

import argparse
import copy
import json
import random
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import torch
import torch.nn.functional as F
from tokenizers import Tokenizer
from torch import Tensor, nn
from transformers import LlamaForCausalLM

from scripts.training import data, models, text
from scripts.training.recipes import RECIPES, Recipe
from scripts.training.solutions import training_chain
from scripts.training.training import Losses, Schedule, share, train
from tts.datasets.demo import Chain, ChainTask, level_of

FORM_WEIGHTS = (0.3, 0.25, 0.45)  # of solutions.STEP_FORMS in the generator's training data
GENERATOR_TOKENS = 3072
SAMPLED_PROBLEMS, SAMPLES_EACH = 6000, 3
HELD_OUT, HELD_OUT_SEED = 500, 31
MIX = (0.25, 0.25, 0.4, 0.1)  # of made-up attempts: many mistakes, one, structural, right


@dataclass
class Run:
    """What a run makes, where it keeps its things, and its seed."""

    recipe: Recipe
    out: Path
    work: Path
    seed: int

    def rng(self, *names: object) -> random.Random:
        """A random generator of its own for each purpose."""
        return random.Random("/".join(map(str, (f"{self.recipe.name}-models", self.seed, *names))))

    def codec(self) -> text.Codec:
        """The codec of the trained tokenizer."""
        return text.Codec(Tokenizer.from_file(str(self.work / "tokenizer.json")))

    def keep(self, stage: str, weights: dict[str, Tensor]) -> None:
        """Save a stage's result."""
        fresh = self.work / f"{stage}.new"
        torch.save(weights, fresh)
        fresh.replace(self.work / f"{stage}.pt")

    def load(self, stage: str, model: nn.Module) -> None:
        """Load a stage's result into a model."""
        model.load_state_dict(torch.load(self.work / f"{stage}.pt", weights_only=True))


def make_tokenizer(run: Run) -> None:
    """Stage tokenizer."""
    text.train_tokenizer(run.recipe.task, run.seed).save(str(run.work / "tokenizer.json"))


def make_generator(run: Run) -> None:
    """Stage generator: stops while the model still makes enough mistakes."""
    codec, task, recipe = run.codec(), run.recipe.task, run.recipe
    rng = run.rng("validation")
    chains = [training_chain(task, rng, 2 + i % 9) for i in range(180)]
    problems = [(chain, task.question_of(chain)) for chain in chains]

    def rows(step: int) -> list[data.Row]:
        rng = run.rng("generator", step)
        operations = rng.randint(2, 10)
        return data.solution_rows(codec, task, rng, operations, GENERATOR_TOKENS, FORM_WEIGHTS)

    def good_enough(step: int, model: LlamaForCausalLM) -> bool:
        if step < 500:
            return False
        reached = models.right_share(models.attempts(model, codec, problems, 2))
        print(f"generator: step {step}, {100 * reached:.1f}% of the samples are right", flush=True)
        return reached >= recipe.generator_target

    model = models.train_language_model(
        "generator", recipe.generator, recipe.generator_schedule, run.seed, rows, good_enough
    )
    run.keep("generator", model.state_dict())


def trained_generator(run: Run) -> LlamaForCausalLM:
    """The result of stage generator."""
    model = LlamaForCausalLM(run.recipe.generator)
    run.load("generator", model)
    return model.eval()


def make_samples(run: Run) -> None:
    """Stage samples: the generator's attempts at training problems, for the verifier to judge."""
    model, codec, task = trained_generator(run), run.codec(), run.recipe.task
    rng, lines = run.rng("samples"), list[str]()
    torch.manual_seed(run.seed)
    for at in range(0, SAMPLED_PROBLEMS, 400):
        chains = [
            training_chain(task, rng, rng.choice((2, 3, 4, 5, 6, 7, 7, 8, 8, 9, 9, 10)))
            for _ in range(400)
        ]
        problems = [(chain, text.random_question(rng, chain)) for chain in chains]
        temperature = 0.8 if at % 800 else 1.0
        for trace in models.attempts(model, codec, problems, SAMPLES_EACH, temperature):
            start, ops = trace.chain.start, trace.chain.ops
            lines.append(json.dumps([start, ops, trace.question, trace.steps[:14]]))
        print(f"samples: {len(lines)}", flush=True)
    (run.work / "samples.jsonl").write_text("\n".join(lines), encoding="utf-8")


def read_samples(file: Path) -> dict[int, list[data.Trace]]:
    """Attempts by their number of operations, checked exactly."""
    own: dict[int, list[data.Trace]] = {}
    for line in file.read_text(encoding="utf-8").splitlines():
        start, ops, question, steps = json.loads(line)
        chain = Chain(start, tuple((op, b) for op, b in ops))
        own.setdefault(len(chain.ops), []).append(data.checked_trace(chain, question, steps))
    return own


class Judge(nn.Module):
    """The verifier with a second head, "is this token the first wrong one", dropped at export."""

    def __init__(self, run: Run) -> None:
        super().__init__()
        config = copy.deepcopy(run.recipe.trunk)
        config.num_hidden_layers = run.recipe.verifier_layers
        self.llama = models.new_model(config)
        self.flaw = nn.Linear(config.hidden_size, 1)

    def losses(self, codec: text.Codec, batch: data.Batch, language: float) -> Losses:
        """The weighted sum of the three losses; label accuracy for show."""
        with torch.autocast("cpu", dtype=torch.bfloat16):
            hidden = models.hidden(self.llama, batch.ids)
            learn = batch.learn[:, 1:]
            word_logits = self.llama.lm_head(hidden[:, :-1][learn])
            judged = self.llama.lm_head(hidden[batch.label_rows, batch.label_columns])
            has_flaw = batch.flaws != data.IGNORE
            flawed = self.flaw(hidden[has_flaw])[:, 0]
        loss_said = F.cross_entropy(word_logits.float(), batch.ids[:, 1:][learn])
        words = torch.where(batch.labels == 1, codec.plus, codec.minus)
        each = F.cross_entropy(judged.float(), words, reduction="none")
        loss_label = (each * batch.weights).sum() / batch.weights.sum()
        loss_flaw = F.binary_cross_entropy_with_logits(
            flawed.float(), batch.flaws[has_flaw].float(), pos_weight=torch.tensor(5.0)
        )
        right = (judged[:, codec.plus] > judged[:, codec.minus]) == (batch.labels == 1)
        first = batch.weights == 1.0
        return {
            "loss": loss_label + language * loss_said + loss_flaw,
            "label": loss_label.detach(),
            "flaw": loss_flaw.detach(),
            "language": loss_said.detach(),
            "missed": 1 - share(right, first & (batch.labels == 0)),
            "falsely accused": 1 - share(right, batch.labels == 1),
        }


def make_trunk(run: Run) -> None:
    """Stage trunk: a language model of right verifier dialogues learns the arithmetic."""
    codec, recipe = run.codec(), run.recipe

    def rows(step: int) -> list[data.Row]:
        traces = _traces(recipe, run.rng("trunk", step), data.right_trace)
        return [(d.ids, d.learn) for d in (data.dialogue(codec, trace) for trace in traces)]

    model = models.train_language_model(
        "trunk", recipe.trunk, recipe.trunk_schedule, run.seed + 1, rows
    )
    run.keep("trunk", model.state_dict())


def _traces(
    recipe: Recipe, rng: random.Random, make: Callable[[random.Random, Chain], data.Trace]
) -> list[data.Trace]:
    """One batch of traces of one operation count."""
    operations = rng.randint(2, 10)
    rows = recipe.verifier_tokens // (22 + 15 * operations)
    return [make(rng, training_chain(recipe.task, rng, operations)) for _ in range(rows)]


def grow(run: Run) -> None:
    """Stage grow: more layers on top, copies of the last one that do nothing yet."""
    trunk = LlamaForCausalLM(run.recipe.trunk)
    run.load("trunk", trunk)
    torch.manual_seed(run.seed + 2)
    judge = Judge(run)
    judge.llama.load_state_dict(trunk.state_dict(), strict=False)
    for i in range(run.recipe.trunk.num_hidden_layers, run.recipe.verifier_layers):
        layer = judge.llama.model.layers[i]
        layer.load_state_dict(trunk.model.layers[-1].state_dict())
        for name in ("self_attn.o_proj.weight", "mlp.down_proj.weight"):
            nn.init.zeros_(layer.get_parameter(name))
    print(f"verifier: {judge.llama.num_parameters():,} parameters")
    run.keep("grow", judge.state_dict())


def synthetic(
    rng: random.Random, chain: Chain, task: ChainTask, shares: tuple[float, ...]
) -> data.Trace:
    """A made-up attempt: many wrong steps, one wrong step, a structural flaw, or right."""
    kind = rng.choices(("many", "one", "structure", "right"), shares)[0]
    if kind == "many":
        return data.wrong_trace(rng, chain, task, rate=rng.choice((0.15, 0.3, 0.5)))
    if kind == "one":
        return data.wrong_trace(rng, chain, task, 0.0, first=rng.randint(0, len(chain.ops)))
    if kind == "structure":
        return data.structural_trace(rng, chain, task)
    return data.right_trace(rng, chain)


def detect(run: Run) -> None:
    """Stage detect: find made-up mistakes, mostly several per attempt."""
    codec, judge = run.codec(), Judge(run)
    run.load("grow", judge)

    def losses(step: int) -> Losses:
        make = partial(synthetic, task=run.recipe.task, shares=(0.6, 0.2, 0.05, 0.15))
        batch = data.dialogue_batch(codec, _traces(run.recipe, run.rng("detect", step), make))
        return judge.losses(codec, batch, language=1.0)

    run.keep("detect", train("detect", judge, run.recipe.detect_schedule, losses))


def judge_samples(run: Run, stage: str, before: str, schedule: Schedule | None) -> None:
    """Stages judge and refine: the generator's attempts, and structural flaws."""
    if schedule is None:
        return
    codec, judge = run.codec(), Judge(run)
    run.load(before, judge)
    by_length = read_samples(run.work / "samples.jsonl")

    def losses(step: int) -> Losses:
        rng = run.rng(stage, step)
        traces = _traces(run.recipe, rng, partial(synthetic, task=run.recipe.task, shares=MIX))
        own = by_length[len(traces[0].chain.ops)]
        traces = [rng.choice(own) if rng.random() < 0.55 else trace for trace in traces]
        return judge.losses(codec, data.dialogue_batch(codec, traces), language=0.5)

    run.keep(stage, train(stage, judge, schedule, losses))


def export(run: Run) -> None:
    """Stage export: both checkpoints."""
    codec, judge = run.codec(), Judge(run)
    run.load("judge" if run.recipe.refine_schedule is None else "refine", judge)
    for name, model in (("generator", trained_generator(run)), ("verifier", judge.llama)):
        folder = run.out / f"{run.recipe.name}-{name}"
        models.save(model, folder, codec)
        text.save_tokenizer(codec.tokenizer, folder)
        print(f"export: {folder}")


def write_problems(run: Run) -> None:
    """Stage problems: held-out problems with id, question, answer and level, as JSONL."""
    task = run.recipe.task
    lines = [
        json.dumps(
            {
                "id": f"{run.recipe.name}-{task.digest('id', chain.key):016x}",
                "question": task.question_of(chain),
                "answer": str(chain.answer),
                "level": level_of(len(chain.ops)),
            }
        )
        for chain in task.held_out_chains(HELD_OUT, HELD_OUT_SEED)
    ]
    (run.work / "problems.jsonl").write_text("\n".join(lines) + "\n", encoding="utf-8")


STAGES: dict[str, tuple[str, Callable[[Run], None]]] = {
    "tokenizer": ("tokenizer.json", make_tokenizer),
    "generator": ("generator.pt", make_generator),
    "samples": ("samples.jsonl", make_samples),
    "trunk": ("trunk.pt", make_trunk),
    "grow": ("grow.pt", grow),
    "detect": ("detect.pt", detect),
    "judge": ("judge.pt", lambda r: judge_samples(r, "judge", "detect", r.recipe.judge_schedule)),
    "refine": (
        "refine.pt",
        lambda r: judge_samples(r, "refine", "judge", r.recipe.refine_schedule),
    ),
    "export": ("", export),
    "problems": ("problems.jsonl", write_problems),
}
"""Stage -> the file in the work folder that says it is done (none: always run), and its code."""


def main() -> None:
    """Do the stages that the command line asks for."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--pair", choices=RECIPES, default="demo")
    parser.add_argument("--out", type=Path, default=Path("engines/checkpoints"), metavar="DIR")
    parser.add_argument("--work", type=Path, required=True, metavar="DIR")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--stage", choices=STAGES, nargs="*", default=list(STAGES))
    args = parser.parse_args()
    torch.set_num_threads(1)
    run = Run(RECIPES[args.pair], args.out, args.work, args.seed)
    run.work.mkdir(parents=True, exist_ok=True)
    for name, (result, stage) in STAGES.items():
        if name not in args.stage:
            continue
        if result and (run.work / result).exists():
            print(f"{name}: done before")
            continue
        began = time.monotonic()
        print(f"{name}: begins", flush=True)
        stage(run)
        print(f"{name}: done in {time.monotonic() - began:.0f} s", flush=True)


if __name__ == "__main__":
    main()
