"""Every program on docs/reference/python.md runs, in order, as a reader would."""

import re
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from tests.endpoints.scripted import ScriptedGenerator, ScriptedVerifier

from tts.build.spec import load_deployment
from tts.build.tokenizer import Tokenizer
from tts.fleet import engines
from tts.fleet.replicas import EnginePair
from tts.fleet.server import Server
from tts.serving.command.ports import Addresses
from tts.session import Session
from tts.session.functions import load_all, source_of

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "reference" / "python.md"
TEXTS = ("So ", "12 + 30 = 42", r"the answer is \boxed{42}", r"\boxed{4}")


@pytest.fixture
def scripted_engines(monkeypatch):
    """Scripted endpoints in the place of a server's."""
    deployment = load_deployment("demo")
    if not deployment.generator.checkpoint.is_dir():
        pytest.skip("the demo checkpoints are not here")
    tokenizer = Tokenizer(deployment.generator.checkpoint)
    words = [tokenizer.encode(text) for text in TEXTS]

    def pair(opened, name, beside, number=0):
        generator = ScriptedGenerator(words, tokenizer.encode("\n\n"))
        return EnginePair("", opened.own[0] or generator, opened.own[1] or ScriptedVerifier())

    @asynccontextmanager
    async def no_servers(services, say, on_loading):
        yield [Server(Addresses("", 0, 0, 0), lambda: None, lambda: None) for _ in services]

    monkeypatch.setattr(engines.Engines, "pair", pair)
    monkeypatch.setattr(engines, "require_engines", lambda deployment, addresses, say: None)
    monkeypatch.setattr(engines, "opened_servers", no_servers)


def test_the_programs_of_the_page_run(scripted_engines, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    namespace = {"__name__": "__main__"}
    blocks = re.findall(r"^```python\n(.*?)^```", PAGE.read_text(encoding="utf-8"), re.M | re.S)
    for number, block in enumerate(blocks, start=1):
        exec(compile(block, f"block {number}", "exec"), namespace)
    assert (tmp_path / "runs" / "mine" / "summary.json").exists()
    printed = capsys.readouterr().out
    assert "broken gave 7 for a chain of 1 steps" in printed
    assert "There is no strategy 'beam-serch'." in printed


PRM = """
def score(question: str, steps: list[str]) -> float:
    return 0.9 if "=" in steps[-1] else 0.5
"""


def test_the_page_of_own_models_leads_to_a_search(servers, tokenizer_folder, tmp_path):
    """Its deployment, with another tokenizer, and a function, on a server in this process."""
    page = (ROOT / "docs" / "start" / "your-own-models.md").read_text(encoding="utf-8")
    blocks = re.findall(r"^```yaml\n(.*?)^```", page, re.M | re.S)
    (described,) = (block for block in blocks if "url:" in block)
    servers.serve("http://127.0.0.1:8000")
    file = tmp_path / "mine.yaml"
    file.write_text(described.replace("Qwen/Qwen2.5-1.5B-Instruct", str(tokenizer_folder)))
    (tmp_path / "prm.py").write_text(PRM)
    found = load_all({"verifier": source_of(f"{tmp_path / 'prm.py'}:score")})["verifier"]
    with Session.open(file, verifier=found.value) as session:
        scores = session.solve("Compute 12 + 30.", n=4).completions[0].step_scores
    assert set(scores) <= {0.5, 0.9}
