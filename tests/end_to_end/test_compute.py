"""The compute of a run of the demo, added up from its trees, tokenizers and weights by hand."""

from itertools import takewhile

import pytest

from tts.build.checkpoint import open_checkpoint
from tts.build.spec import load_deployment
from tts.prompting import Models
from tts.runs.run import Run
from tts.session import Session

PROBLEMS = [("Compute 1 + 2.", "3"), ("Compute 3 + 4 * 5.", "23")]


def parameters(folder):
    """Those that a token meets: all, but for an embedding that is not the head, too."""
    checkpoint = open_checkpoint(folder)
    shape = checkpoint.config
    unread = 0 if shape.tie_word_embeddings else shape.vocab_size * shape.hidden_size
    return checkpoint.num_parameters - unread


def own_tokens(models, result):
    """The prompt and every thought once; the question once, then every step that is scored."""
    prompt, asked = (ids.tolist() for ids in models.prompts(result.problem))
    generator = len(prompt) + sum(len(node.thought.token_ids) for node in result.tree)
    dialogues, own, read = {(): asked}, {}, set()
    for node in sorted(result.tree, key=lambda node: len(node.path)):
        parent, step = dialogues[node.path[:-1]], node.thought.text.strip()
        ids = (
            models.verifier.first(result.problem.question, step)
            if len(node.path) == 1
            else models.verifier.extend(parent, step)
        )
        dialogues[node.path] = ids
        pairs = zip(ids, parent, strict=False)
        shared = sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], pairs))
        own[tuple(ids.tolist())] = len(ids) - shared
        if node.score is not None:
            read |= {node.path[:depth] for depth in range(1, len(node.path) + 1)}
        if len(node.path) == 1:
            question = shared
    steps = {tuple(dialogues[path].tolist()) for path in read}
    return generator, question + sum(own[ids] for ids in steps)


@pytest.fixture(scope="module")
def session(new_home):
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TTS_HOME", str(new_home()))
        with Session.open("demo", server="embedded") as session:
            yield session


@pytest.mark.parametrize("strategy", ["best-of-n", "rebase", "majority-vote"])
def test_the_compute_of_a_run_of_the_demo(session, strategy, tmp_path):
    deployment = load_deployment("demo")
    models = Models.load(deployment)
    sizes = [parameters(spec.checkpoint) for spec in deployment.engines().values()]
    asked = {"strategy": strategy, "n": 4}
    found = {
        name: list(session.solve_many(PROBLEMS, **asked, schedule=name, out=tmp_path / name))
        for name in ("lockstep", "decoupled")
    }
    tokens = [own_tokens(models, result) for result in found["lockstep"]]
    generated, scored = (sum(each) for each in zip(*tokens, strict=True))
    scored = 0 if strategy == "majority-vote" else scored
    for schedule in found:
        run = Run.load(tmp_path / schedule)
        assert run.summary.compute == 2 * (sizes[0] * generated + sizes[1] * scored)
        assert run.measures["compute"] == run.summary.compute
