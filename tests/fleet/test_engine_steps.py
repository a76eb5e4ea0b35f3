"""Recording engine steps beside a run: from followed logs, from metrics, and without a way."""

import asyncio
import threading
import time
from contextlib import closing, contextmanager
from functools import partial
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest

from tts.engines.statistics import IterationLog, Statistics
from tts.fleet import engine_steps
from tts.fleet.engine_steps import MetricSamples, logged_steps, recording_steps, steps_of
from tts.runs.engine_steps import EngineStep, StepSession, read_step_log
from tts.runs.folder import create_run
from tts.runs.log import RunLog
from tts.serving.command.ports import Addresses
from tts.serving.repository.model_configs import iteration_logs


def record(folder, opening, work, error=None):
    """A session of a run in which `work(log)` happens, and which `error` may end."""
    if not folder.exists():
        create_run(folder, {})

    async def session():
        with RunLog(folder) as log:
            async with recording_steps(log, opening):
                work(log)
                if error:
                    raise error

    asyncio.run(session())


@pytest.fixture
def log(tmp_path, monkeypatch, tiny_deployment):
    """The iteration log that the generator's engine writes."""
    monkeypatch.setenv("TTS_HOME", str(tmp_path / "home"))
    log = IterationLog(iteration_logs(tiny_deployment)["generator"])
    yield log
    log.close()


def sessions(folder, role="generator"):
    """Each session of a run with its steps."""
    found = []
    for line in read_step_log(folder, role):
        if isinstance(line, StepSession):
            found.append((line, []))
        else:
            found[-1][1].append(line)
    return found


def times(folder, role="generator"):
    return [[step.iteration for step in steps] for _, steps in sessions(folder, role)]


def iteration(number, active=0, monotonic=None):
    at = time.monotonic() if monotonic is None else monotonic
    return Statistics(number, monotonic=at, active=active)


def write(log, *numbers):
    for number in numbers:
        log.write(iteration(number))
    log.flush()


def test_each_session_has_the_steps_of_its_own_time(log, tiny_deployment, tmp_path):
    opening = steps_of(tiny_deployment, Addresses("", 1, 0, 0), ours=True)

    log.write(iteration(1))  # still in the engine's buffer when the run begins
    record(tmp_path / "run", opening, lambda run: write(log, 2, 3))
    write(log, 4)
    record(tmp_path / "run", opening, lambda run: write(log, 5))
    assert times(tmp_path / "run") == [[2, 3], [5]]
    assert times(tmp_path / "run", "verifier") == []
    (first, steps), _ = sessions(tmp_path / "run")
    assert not first.sampled
    assert all(0 <= step.t < 60 for step in steps)
    assert steps[0].blocks == tiny_deployment.generator.kv_cache.blocks


@pytest.mark.parametrize("error", [KeyboardInterrupt(), asyncio.CancelledError(), ValueError()])
def test_a_session_that_is_ended_has_its_steps_all_the_same(log, tiny_deployment, tmp_path, error):
    opening = partial(logged_steps, tiny_deployment)
    with pytest.raises(type(error)):
        record(tmp_path / "run", opening, lambda run: write(log, 1), error)
    assert times(tmp_path / "run") == [[1]]


class Late:
    """A source whose engines write their last steps after the run's end."""

    sampled = False

    def __init__(self, *reads):
        self._reads = list(reads)

    def read(self):
        numbers = self._reads.pop(0) if self._reads else ()
        return {"generator": [EngineStep(t=0.0, iteration=number) for number in numbers]}

    def is_complete(self, until):
        return not self._reads

    def close(self):
        pass


def test_the_last_steps_of_an_engine_are_waited_for(tmp_path):
    record(tmp_path / "run", lambda began: Late([1], [2], [], [3, 4]), lambda run: None)
    assert times(tmp_path / "run") == [[1, 2, 3, 4]]


def test_an_engine_is_through_when_it_is_idle_or_past_the_end(log, tiny_deployment):
    began = time.monotonic()
    with closing(logged_steps(tiny_deployment, began)) as logs:
        assert logs.is_complete(began + 9), "nothing is known of it"
        for step, complete in (
            (iteration(1, active=2, monotonic=began + 8), False),
            (iteration(2, active=2, monotonic=began + 10), True),
            (iteration(3, active=0, monotonic=began + 8), True),
        ):
            log.write(step)
            log.flush()
            logs.read()
            assert logs.is_complete(began + 9) == complete


def test_a_run_without_a_server_records_nothing(tmp_path):
    record(tmp_path / "run", None, lambda log: None)
    assert not (tmp_path / "run" / "engine-steps").exists()


def test_a_run_goes_on_where_nothing_can_be_recorded(tmp_path, caplog):
    def refuse(began):
        raise PermissionError("no")

    record(tmp_path / "run", refuse, lambda log: None)
    assert "not recorded" in caplog.text


@contextmanager
def serving(*pages):
    """The address of a server that gives one page after the other, the last one for ever.

    In place of None it ends the connection.
    """
    left = list(pages)

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self):
            if (page := left.pop(0) if len(left) > 1 else left[0]) is None:
                self.close_connection = True
                return
            self.send_response(200)
            self.send_header("Content-Length", str(len(page)))
            self.end_headers()
            self.wfile.write(page.encode())

        def log_message(self, *arguments):
            pass

    server = HTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    yield f"127.0.0.1:{server.server_port}"
    server.shutdown()
    thread.join()
    server.server_close()


def page(iteration, active):
    family = "nv_trt_llm_general_metrics"
    labels = 'model="generator",version="1"'
    return (
        f'{family}{{general_type="iteration_counter",{labels}}} {iteration}\n'
        f'nv_trt_llm_request_metrics{{request_type="active",{labels}}} {active}'
    )


def test_metrics_are_sampled_where_the_engines_have_made_steps_since():
    with serving(page(5, 1), page(5, 1), page(9, 4), page(9, 0)) as address:
        samples = MetricSamples(address, time.monotonic())
        found = [dict(samples.read()) for _ in range(4)]
    assert [list(each) for each in found] == [[], [], ["generator"], []]
    (step,) = found[2]["generator"]
    assert isinstance(step, EngineStep)
    assert (step.iteration, step.active) == (9, 4)


def test_samples_go_on_behind_a_server_that_breaks_an_answer_off(monkeypatch, tmp_path):
    monkeypatch.setattr(engine_steps, "PERIOD_S", 0.01)
    with serving(page(5, 1), None, page(9, 4)) as address:
        asked = threading.Event()

        class Samples(MetricSamples):
            def read(self):
                samples = super().read()
                if samples.get("generator"):
                    asked.set()
                return samples

        record(
            tmp_path / "run",
            lambda began: Samples(address, began),
            lambda log: asked.wait(10),
        )
    assert times(tmp_path / "run") == [[9]]


def test_samples_are_recorded_as_such(tiny_deployment, tmp_path):
    with serving(page(5, 1), page(9, 4)) as address:
        host, port = address.split(":")
        opening = steps_of(tiny_deployment, Addresses(host, 1, 0, int(port)), ours=False)
        record(tmp_path / "run", opening, lambda log: None)
    ((session, steps),) = sessions(tmp_path / "run")
    assert session.sampled
    assert [step.iteration for step in steps] == [9]


def test_a_server_without_metrics_is_not_asked_and_one_that_is_gone_is_no_failure(
    tiny_deployment, tmp_path
):
    assert steps_of(tiny_deployment, Addresses("127.0.0.1", 1, 0, 0), ours=False) is None
    with serving("") as address:
        pass
    record(tmp_path / "run", lambda began: MetricSamples(address, began), lambda log: None)
    assert not (tmp_path / "run" / "engine-steps").exists()
