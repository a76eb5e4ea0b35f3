"""Train the bundled demo pair, or another pair of its kind, from scratch.

    scripts/run training.demo_models --out engines/checkpoints --work runs/demo-training
    scripts/run training.demo_models --pair remainders --out OUT --work WORK

The pairs are in `recipes`. Everything is synthetic and made on the fly from the seed (see
tts.datasets.chains). Each stage keeps its result in the work folder and is skipped
when it is there; a killed run goes on where it was. Runs are seeded but not bitwise
repeatable: thread counts and torch versions change the sums.

Stages: tokenizer, generator, samples (of the trained generator, checked exactly), trunk (a
language model of right solutions, the verifier's beginning), grow (more layers), detect (find
wrong tokens and steps), judge and refine (judge the generator's own solutions, two rounds), export,
evaluate.

Needs torch, safetensors, tokenizers and the installed project.
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

from scripts.training import data, evaluate, text
from scripts.training.model import Llama, Shape, load_hf, parameter_count, save_hf
from scripts.training.recipes import RECIPES, Recipe
from scripts.training.training import Losses, Schedule, train
from tts.datasets.chains import Chain, ChainTask

FORM_WEIGHTS = (0.3, 0.25, 0.45)  # of chains.STEP_FORMS in the generator's training data
GENERATOR_TOKENS = 3072
SAMPLED_PROBLEMS, SAMPLES_EACH = 6000, 3
TEST_PROBLEMS, TEST_SEED = 300, 20_000


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

    def weights(self, stage: str) -> Path:
        """The file of a stage's result."""
        return self.work / f"{stage}.pt"

    def keep(self, stage: str, weights: dict[str, Tensor]) -> None:
        """Save a stage's result, and drop the state it would have resumed from."""
        fresh = self.work / f"{stage}.new"
        torch.save(weights, fresh)
        fresh.replace(self.weights(stage))
        (self.work / f"{stage}.state").unlink(missing_ok=True)

    def load(self, stage: str, model: nn.Module) -> None:
        """Load a stage's result into a model."""
        model.load_state_dict(torch.load(self.weights(stage), weights_only=True))


def make_tokenizer(run: Run) -> None:
    """Stage tokenizer."""
    text.train_tokenizer(run.recipe.task, run.seed).save(str(run.work / "tokenizer.json"))


def make_generator(run: Run) -> None:
    """Stage generator: stops while the model still makes enough mistakes."""
    codec = run.codec()
    torch.manual_seed(run.seed)
    model, probe = Llama(run.recipe.generator), Llama(run.recipe.generator)
    print(f"generator: {parameter_count(model):,} parameters")
    rng = run.rng("validation")
    held = [run.recipe.task.sample_training_chain(rng, 2 + i % 9) for i in range(180)]

    def losses(step: int) -> Losses:
        rng = run.rng("generator", step)
        ids, learn = data.solution_batch(
            codec, run.recipe.task, rng, rng.randint(2, 10), GENERATOR_TOKENS, FORM_WEIGHTS
        )
        with torch.autocast("cpu", dtype=torch.bfloat16):
            logits = model.logits(model(ids[:, :-1])[learn[:, 1:]])
        return {"loss": F.cross_entropy(logits.float(), ids[:, 1:][learn[:, 1:]])}

    def good_enough(step: int, weights: dict[str, Tensor]) -> bool:
        if step < 500:
            return False
        probe.load_state_dict(weights)
        pair = evaluate.Pair(codec, probe.eval(), None)
        share = evaluate.accuracy(pair, run.recipe.task, held, 2, step)
        print(f"generator: step {step}, {100 * share:.1f}% of the samples are right", flush=True)
        return share >= run.recipe.generator_target

    state = run.work / "generator.state"
    weights = train("generator", model, run.recipe.generator_schedule, losses, state, good_enough)
    run.keep("generator", weights)


def trained_generator(run: Run) -> Llama:
    """The result of stage generator."""
    model = Llama(run.recipe.generator)
    run.load("generator", model)
    return model.eval()


def make_samples(run: Run) -> None:
    """Stage samples: the generator's attempts at training problems, for the verifier to judge."""
    codec, model = run.codec(), trained_generator(run)
    rng = run.rng("samples")
    jobs = []
    for _ in range(SAMPLED_PROBLEMS):
        chain = run.recipe.task.sample_training_chain(
            rng, rng.choice((2, 3, 4, 5, 6, 7, 7, 8, 8, 9, 9, 10))
        )
        jobs.append((chain, text.random_question(rng, chain)))
    noise = torch.Generator().manual_seed(run.seed)
    fresh = run.work / "samples.new"
    started = time.monotonic()
    with fresh.open("w", encoding="utf-8") as file:
        for at in range(0, len(jobs), 500):
            part = jobs[at : at + 500]
            pair = evaluate.Pair(codec, model, None, temperature=0.8 if at % 1000 else 1.0)
            groups = evaluate.sampled(pair, [q for _, q in part], SAMPLES_EACH, noise)
            for (chain, question), group in zip(part, groups, strict=True):
                for attempt in group:
                    steps = evaluate.attempt_texts(codec, attempt)[:14]
                    row = {"start": chain.start, "ops": chain.ops, "q": question, "steps": steps}
                    file.write(json.dumps(row) + "\n")
            print(
                f"samples: {at + 500}/{len(jobs)}, {time.monotonic() - started:.0f} s", flush=True
            )
    fresh.replace(run.work / "samples.jsonl")


def read_samples(run: Run) -> list[data.Trace]:
    """The result of stage samples, checked exactly."""
    traces = []
    for line in (run.work / "samples.jsonl").read_text(encoding="utf-8").splitlines():
        row = json.loads(line)
        chain = Chain(row["start"], tuple((op, b) for op, b in row["ops"]))
        traces.append(data.checked_trace(chain, row["q"], row["steps"]))
    return traces


class Judge(nn.Module):
    """The verifier with a second head, "is this token the first wrong one", dropped at export."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.llama = Llama(shape)
        self.flaw = nn.Linear(shape.hidden, 1)

    def losses(self, codec: text.Codec, batch: data.Batch, language: float) -> Losses:
        """The weighted sum of the three losses; label accuracy for show."""
        with torch.autocast("cpu", dtype=torch.bfloat16):
            hidden = self.llama(batch.ids)
            learn = batch.learn[:, 1:]
            said = self.llama.logits(hidden[:, :-1][learn])
            judged = self.llama.logits(hidden[batch.label_rows, batch.label_columns])
            told = batch.flaws != data.IGNORE
            flawed = self.flaw(hidden[told])[:, 0]
        loss_said = F.cross_entropy(said.float(), batch.ids[:, 1:][learn])
        words = torch.where(batch.labels == 1, codec.plus, codec.minus)
        each = F.cross_entropy(judged.float(), words, reduction="none")
        loss_label = (each * batch.weights).sum() / batch.weights.sum()
        loss_flaw = F.binary_cross_entropy_with_logits(
            flawed.float(), batch.flaws[told].float(), pos_weight=torch.tensor(5.0)
        )
        right = (judged[:, codec.plus] > judged[:, codec.minus]) == (batch.labels == 1)
        first = batch.weights == 1.0
        return {
            "loss": loss_label + language * loss_said + loss_flaw,
            "label": loss_label.detach(),
            "flaw": loss_flaw.detach(),
            "language": loss_said.detach(),
            "missed": 1 - _share(right, first & (batch.labels == 0)),
            "falsely accused": 1 - _share(right, batch.labels == 1),
        }


def _share(flags: Tensor, among: Tensor) -> Tensor:
    return flags[among].float().mean() if among.any() else torch.tensor(1.0)


def make_trunk(run: Run) -> None:
    """Stage trunk: a language model of right verifier dialogues learns the arithmetic."""
    codec = run.codec()
    torch.manual_seed(run.seed + 1)
    model = Llama(run.recipe.trunk)
    print(f"trunk: {parameter_count(model):,} parameters")
    digits = torch.zeros(run.recipe.trunk.vocabulary, dtype=torch.bool)
    digits[codec.digits] = True

    def losses(step: int) -> Losses:
        rng = run.rng("trunk", step)
        batch = data.dialogue_batch(codec, _traces(run.recipe, rng, data.right_trace))
        learn = batch.learn[:, 1:]
        with torch.autocast("cpu", dtype=torch.bfloat16):
            logits = model.logits(model(batch.ids[:, :-1])[learn])
        words = batch.ids[:, 1:][learn]
        slips = (logits.argmax(dim=-1) != words)[digits[words]].float().mean()
        return {"loss": F.cross_entropy(logits.float(), words), "wrong digits": slips}

    schedule = run.recipe.trunk_schedule
    run.keep("trunk", train("trunk", model, schedule, losses, run.work / "trunk.state"))


def _traces(
    recipe: Recipe, rng: random.Random, make: Callable[[random.Random, Chain], data.Trace]
) -> list[data.Trace]:
    """One batch of traces of one operation count."""
    operations = rng.randint(2, 10)
    rows = recipe.verifier_tokens // (22 + 15 * operations)
    return [make(rng, recipe.task.sample_training_chain(rng, operations)) for _ in range(rows)]


def grow(run: Run) -> None:
    """Stage grow: more layers on top, copies of the last one that do nothing yet."""
    trunk = Llama(run.recipe.trunk)
    run.load("trunk", trunk)
    torch.manual_seed(run.seed + 2)
    judge = make_judge(run)
    judge.llama.load_state_dict(trunk.state_dict(), strict=False)
    for i in range(run.recipe.trunk.layers, run.recipe.verifier.layers):
        judge.llama.layers[i] = layer = copy.deepcopy(trunk.layers[-1])
        for name in ("self_attn.o_proj.weight", "mlp.down_proj.weight"):
            nn.init.zeros_(layer.get_parameter(name))
    print(f"verifier: {parameter_count(judge.llama):,} parameters")
    run.keep("grow", judge.state_dict())


def make_judge(run: Run) -> Judge:
    """A verifier with random weights."""
    return Judge(run.recipe.verifier)


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
    codec, judge = run.codec(), make_judge(run)
    run.load("grow", judge)

    def losses(step: int) -> Losses:
        make = partial(synthetic, task=run.recipe.task, shares=(0.6, 0.2, 0.05, 0.15))
        batch = data.dialogue_batch(codec, _traces(run.recipe, run.rng("detect", step), make))
        return judge.losses(codec, batch, language=1.0)

    schedule = run.recipe.detect_schedule
    run.keep("detect", train("detect", judge, schedule, losses, run.work / "detect.state"))


def judge_samples(run: Run, stage: str, before: str, schedule: Schedule) -> None:
    """What judge and refine learn from: the generator's attempts, and structural flaws."""
    codec, judge = run.codec(), make_judge(run)
    run.load(before, judge)
    by_length: dict[int, list[data.Trace]] = {}
    for trace in read_samples(run):
        by_length.setdefault(len(trace.chain.ops), []).append(trace)

    def losses(step: int) -> Losses:
        rng = run.rng(stage, step)
        make = partial(synthetic, task=run.recipe.task, shares=(0.25, 0.25, 0.4, 0.1))
        traces = _traces(run.recipe, rng, make)
        own = by_length[len(traces[0].chain.ops)]
        traces = [rng.choice(own) if rng.random() < 0.55 else trace for trace in traces]
        return judge.losses(codec, data.dialogue_batch(codec, traces), language=0.5)

    run.keep(stage, train(stage, judge, schedule, losses, run.work / f"{stage}.state"))


def export(run: Run) -> None:
    """Stage export: both checkpoints in the HF layout."""
    codec, judge = run.codec(), make_judge(run)
    run.load(run.recipe.last_stage, judge)
    for name, model in (("generator", trained_generator(run)), ("verifier", judge.llama)):
        folder = run.out / f"{run.recipe.name}-{name}"
        folder.mkdir(parents=True, exist_ok=True)
        save_hf(model, folder, codec.eot, codec.bos, codec.pad)
        text.save_tokenizer(codec.tokenizer, folder)
        print(f"export: {folder}")


def evaluate_pair(run: Run) -> None:
    """Stage evaluate: the exported pair on held-out problems."""
    generator, verifier = (
        load_hf(run.out / f"{run.recipe.name}-{name}") for name in ("generator", "verifier")
    )
    pair = evaluate.Pair(run.codec(), generator, verifier)
    held_out = run.recipe.task.held_out_chains(TEST_PROBLEMS, TEST_SEED)
    right = evaluate.measure(pair, run.recipe.task, held_out, n=16, width=4, seed=run.seed)
    print(evaluate.table(right, held_out))
    print(evaluate.gaps(right))
    (run.work / "evaluation.json").write_text(json.dumps(right), encoding="utf-8")


def judge(run: Run) -> None:
    """Stage judge."""
    judge_samples(run, "judge", "detect", run.recipe.judge_schedule)


def refine(run: Run) -> None:
    """Stage refine, of a pair that has one."""
    if run.recipe.refine_schedule is not None:
        judge_samples(run, "refine", "judge", run.recipe.refine_schedule)


STAGES: dict[str, tuple[str, Callable[[Run], None]]] = {
    "tokenizer": ("tokenizer.json", make_tokenizer),
    "generator": ("generator.pt", make_generator),
    "samples": ("samples.jsonl", make_samples),
    "trunk": ("trunk.pt", make_trunk),
    "grow": ("grow.pt", grow),
    "detect": ("detect.pt", detect),
    "judge": ("judge.pt", judge),
    "refine": ("refine.pt", refine),
    "export": ("", export),
    "evaluate": ("", evaluate_pair),
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
    started = time.monotonic()
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
    print(f"total: {time.monotonic() - started:.0f} s")


if __name__ == "__main__":
    main()
