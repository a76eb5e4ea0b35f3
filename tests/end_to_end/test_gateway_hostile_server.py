"""The short form of scripts/run robustness.gateway: wrong, cut and silent clients, and kill -9."""

import pytest
from scripts.robustness.gateway import deaths, from_document, hostile
from scripts.robustness.gateway.running import gateway
from tests.amounts import amount

from tts.build import paths

pytestmark = [
    pytest.mark.server,
    pytest.mark.skipif(
        not (paths.deployments_dir().parent / "checkpoints" / "demo-verifier").is_dir(),
        reason="the demo checkpoints are not here",
    ),
]


@pytest.fixture(scope="module")
def home(new_served_home):
    with pytest.MonkeyPatch.context() as patched:
        patched.setenv("TTS_HOME", str(new_served_home()))
        yield


@pytest.fixture(scope="module")
def attacked(home):
    with gateway() as attacked:
        yield attacked
    assert "Traceback" not in "".join(attacked.said)


def fives(seen):
    return {name: count for name, count in seen.items() if ": 5" in name}


def test_no_hostile_request_gets_an_answer_of_500_or_hangs(attacked):
    seen = hostile.run(attacked.host_port, 6 * len(hostile.ATTACKS), 0)
    assert fives(seen) == {}
    assert seen["nothing wrong: 200"] == 6
    large = hostile.run_large(attacked.host_port, 1, 0)
    assert set(large) <= {f"{name}: {end}" for name, _ in hostile.LARGE_ATTACKS
                          for end in (413, "closed")}  # fmt: skip


@pytest.mark.slow
def test_no_request_made_up_from_the_document_gets_an_answer_of_500(attacked):
    pytest.importorskip("schemathesis", reason="schemathesis is not installed")
    seen = from_document.run(attacked.address, amount(20, 60), 0)
    assert fives(seen) == {}
    assert any(name.endswith("200") for name in seen)


def test_silent_connections_end_and_delay_nobody(attacked):
    hostile.run_idle(attacked.host_port, 300)


def test_the_log_of_a_gateway_that_is_killed_holds_what_it_has_answered(home):
    with gateway() as served:
        # documented: 0.1 s, which the long form holds it to; here others have the CPU too
        counts = deaths.kill_gateway(served, seconds=2, clients=4, lost_s=1)
    assert counts["of which due in the log"] > 0
