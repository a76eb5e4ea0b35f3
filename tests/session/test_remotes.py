"""Sessions whose engines run already, on servers that a deployment names by their URL."""

import asyncio
import json
import math

import pytest
from tests.endpoints.openai.stand_in import TOKENIZER, StandIn, answering, log_prob
from tests.session.remote_servers import FakeServer, remote

from tts.base.errors import ConfigError, EndpointUnavailable, RunError, ServerError
from tts.build.spec import Deployment
from tts.build.verifiers.dialogue import verifier_dialogue
from tts.build.verifiers.untrained import last_step
from tts.session import AsyncSession, Session

QUESTIONS = [f"Compute {number} + 1." for number in range(12)]
SEARCH = {"strategy": "beam-search", "n": 4, "num_iterations": 3}


def test_no_server_is_started_where_both_run_already(tiny_deployment, servers):
    said = []
    with Session.open(remote(tiny_deployment), say=said.append) as session:
        result = session.solve("Compute 2 + 2.", **SEARCH)
        assert result.completions
        assert session.generate("Compute 2 + 2.", n=2)
        assert session.score("Compute 2 + 2.", ["2 + 2 = 4"])
    assert [line.split(":")[0] for line in said] == [
        "Using the generator at http",
        "Using the verifier at http",
    ]
    assert "vLLM serving qwen" in said[0]
    assert servers.closed == {"http://gen", "http://ver"}
    assert servers.keys == {"http://gen": None, "http://ver": None}


def solved(deployment, folder=None, *, resume=False, **own):
    with Session.open(deployment, **own) as session:
        results = session.solve_many(QUESTIONS, out=folder, resume=resume, **SEARCH)
        return sorted((result.problem.id, result.tree_digest) for result in results)


def test_trees_are_those_of_any_other_engines_with_these_seeds(tiny_deployment, servers, endpoints):
    trees = solved(remote(tiny_deployment))
    assert trees == solved(remote(tiny_deployment), **endpoints)
    assert trees != solved(tiny_deployment, **endpoints)


def test_a_run_says_how_its_seeds_were_made_and_goes_on_with_these_alone(
    tiny_deployment, servers, endpoints, tmp_path
):
    far, near = (tmp_path / name for name in ("far", "near"))
    solved(remote(tiny_deployment), far)
    solved(tiny_deployment, near, **endpoints)
    (far / "summary.json").unlink()
    recorded = json.loads((far / "run.json").read_text())
    assert recorded.pop("seeds") == "consecutive"
    assert "seeds" not in json.loads((near / "run.json").read_text())
    (far / "run.json").write_text(json.dumps(recorded))
    with pytest.raises(RunError, match="its seeds was None and is now 'consecutive'"):
        solved(remote(tiny_deployment), far, resume=True)


@pytest.mark.parametrize("key", ["a\nb", "a\r", "\x01", "\udcff"])
def test_a_key_that_no_header_can_hold_is_refused(tiny_deployment, monkeypatch, key):
    monkeypatch.setenv("GEN_KEY", key)
    with pytest.raises(ConfigError, match=r"generator\.api_key_env names GEN_KEY"):
        Session.open(remote(tiny_deployment, api_key_env="GEN_KEY"))


def test_a_run_says_what_it_was_made_with_and_never_a_key(
    tiny_deployment, servers, tmp_path, monkeypatch
):
    monkeypatch.setenv("GEN_KEY", "sk-secret")
    servers.serve("http://gen", seeds=False, seeds_beside_others=False)
    solved(remote(tiny_deployment, api_key_env="GEN_KEY"), tmp_path / "run")
    assert servers.keys["http://gen"] == "sk-secret"
    text = (tmp_path / "run" / "run.json").read_text()
    assert "sk-secret" not in text
    found = json.loads(text)["remotes"]
    assert found["generator"]["url"] == ["http://gen"]
    assert found["generator"]["model"] == "qwen"
    assert "seeds NOT honoured" in found["generator"]["servers"][0]
    assert found["generator"]["reproducible"] is False
    assert "reproducible" not in found["verifier"]


@pytest.mark.parametrize(("in_flight", "repeats"), [(1, True), (8, False)])
def test_seeds_that_hold_one_at_a_time_are_enough_for_one_at_a_time(
    tiny_deployment, servers, tmp_path, in_flight, repeats
):
    servers.serve("http://gen", seeds_beside_others=False)
    said = []
    deployment = remote(tiny_deployment, in_flight_requests=in_flight)
    with Session.open(deployment, say=said.append) as session:
        list(session.solve_many(QUESTIONS[:1], out=tmp_path / "run", **SEARCH))
    found = json.loads((tmp_path / "run" / "run.json").read_text())["remotes"]["generator"]
    assert found["reproducible"] is repeats
    assert any("not with several requests in flight" in line for line in said) is not repeats


def test_a_server_says_how_likely_steps_are(tiny_deployment):
    steps = ["2 + 2 = 4", "So it is 4."]
    with answering(StandIn("vllm")) as url:
        data = remote(tiny_deployment, verifier=(url,)).model_dump()
        del data["verifier"]["labels"]
        data["verifier"] |= {
            "format": "likelihood",
            "tokenizer": TOKENIZER.checkpoint,
            "max_seq_len": 160,
        }
        deployment = Deployment.model_validate(data)
        with Session.open(deployment, generator=lambda prompt: "A.") as session:
            found = session.score("Compute 2 + 2.", [steps]).completions[0].step_scores
    dialogue = verifier_dialogue(TOKENIZER, deployment.verifier)
    ids = dialogue.first("Compute 2 + 2.", steps[0])
    for score, path in zip(found, (ids, dialogue.extend(ids, steps[1])), strict=True):
        tokens, places = (each.tolist() for each in last_step(path, dialogue.vocab_size))
        given = [log_prob(tokens[:place], tokens[place]) for place in places]
        assert score == pytest.approx(math.exp(sum(given) / len(given)), abs=1e-4)


def test_a_run_goes_on_elsewhere_but_not_with_another_model(tiny_deployment, servers, tmp_path):
    run = tmp_path / "run"
    done = solved(remote(tiny_deployment), run)
    (run / "summary.json").unlink()
    servers.serve("http://moved")
    assert solved(remote(tiny_deployment, generator=("http://moved",)), run, resume=True) == done
    servers.serve("http://moved", model="another")
    with pytest.raises(RunError, match="its generator was 'qwen' and is now 'another'"):
        solved(remote(tiny_deployment, generator=("http://moved",)), run, resume=True)


@pytest.mark.parametrize(
    ("known", "changes", "told"),
    [
        ({"context": 200}, {}, "200 tokens, and generator.max_seq_len is 320"),
        ({}, {"guided_decoding": True}, "generator.guided_decoding"),
        ({}, {"model": "llama"}, "llama"),
    ],
)
def test_what_cannot_work_is_refused_at_opening(tiny_deployment, servers, known, changes, told):
    servers.serve("http://gen", **known)
    with pytest.raises(ServerError, match=told), Session.open(remote(tiny_deployment, **changes)):
        pass
    assert servers.closed == {"http://gen", "http://ver"}


def test_a_server_that_does_not_answer_and_a_key_that_lacks_are_named(tiny_deployment, servers):
    servers.down.add("http://ver")
    with pytest.raises(ServerError, match="The verifier does not answer at http://ver"):
        Session.open(remote(tiny_deployment))
    with pytest.raises(ConfigError, match="api_key_env names NO_KEY, which is not in the env"):
        Session.open(remote(tiny_deployment, api_key_env="NO_KEY"))


def test_each_server_is_asked_and_named_once_and_blamed_for_itself_alone(
    tiny_deployment, servers, monkeypatch
):
    said = []
    with Session.open(
        remote(tiny_deployment, generator=("http://gone", "http://gen")), say=said.append
    ):
        assert sum("http://gone: does not answer" in line for line in said) == 1
    answers = FakeServer.probe

    async def probe(server, patience_s=None):
        try:
            return await answers(server)
        except EndpointUnavailable as error:
            raise EndpointUnavailable(error.message, f"Start {server.url}.") from None

    monkeypatch.setattr(FakeServer, "probe", probe)
    servers.down.add("http://ver")
    with pytest.raises(ServerError) as refused:
        Session.open(remote(tiny_deployment, generator=("http://gone", "http://gen")))
    assert refused.value.hint == "Start http://ver."


def test_triton_is_not_asked_for_what_runs_elsewhere(tiny_deployment, servers):
    with pytest.raises(ConfigError, match="one:1 is no server of far"):
        AsyncSession(remote(tiny_deployment), endpoints=["one:1"])

    async def one_more():
        async with AsyncSession(remote(tiny_deployment)) as session:
            assert await session.reset_prefix_caches() is False
            await session.replicas.add("one:1")

    with pytest.raises(ServerError, match="one:1 cannot be added"):
        asyncio.run(one_more())


def test_an_engine_elsewhere_stands_beside_one_of_the_program(tiny_deployment, servers):
    def reward(question, steps):
        return 0.5

    deployment = remote(tiny_deployment, verifier=())
    with Session.open(deployment, verifier=reward) as session:
        assert session.solve("Compute 2 + 2.", **SEARCH).completions
    assert servers.asked.keys() == {"http://gen"}
    with Session.open(remote(tiny_deployment), verifier=reward) as session:
        assert session.solve("Compute 2 + 2.", **SEARCH).completions
    assert servers.keys.keys() == {"http://gen"}


def test_several_addresses_share_the_work_and_one_may_be_away(tiny_deployment, servers):
    servers.serve("http://gen2")
    deployment = remote(tiny_deployment, generator=("http://gen", "http://gen2", "http://gone"))
    said = []
    with Session.open(deployment, say=said.append) as session:
        results = list(session.solve_many(QUESTIONS, **SEARCH))
    assert len(results) == len(QUESTIONS)
    assert {"http://gen", "http://gen2", "http://ver"} == servers.asked.keys()
    assert "The generator at http://gone: does not answer" in said


def test_a_server_that_goes_away_leaves_its_work_to_the_others(tiny_deployment, servers):
    servers.serve("http://gen2")

    async def go():
        deployment = remote(tiny_deployment, generator=("http://gen", "http://gen2"))
        async with AsyncSession(deployment) as session:
            found = []
            async for result in session.solve_many(QUESTIONS, **SEARCH):
                found.append(result.problem.id)
                servers.down.add("http://gen")
            servers.down.clear()
            return found

    assert len(asyncio.run(go())) == len(QUESTIONS)
