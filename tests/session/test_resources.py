"""What a run takes of its machine is in its log; GPUs are those of a stand-in of NVML."""

import asyncio
import sys
from types import SimpleNamespace

import pytest

from tts.base.errors import RunError
from tts.runs.events import VERSION, Resources, SessionBegan
from tts.runs.log import RunLog, read_events
from tts.runs.measures import Measures
from tts.session import run
from tts.session.run import gpu_energy, recorded_resources


class NVMLError(Exception):
    """As the real one, the base of all errors of NVML."""


class StandIn(SimpleNamespace):
    """NVML with counters that the test moves; None: a GPU that counts no energy."""

    NVMLError = NVMLError

    def __init__(self, counters, driver=True):
        super().__init__(counters=counters, driver=driver, open=0)

    def nvmlInit(self):
        if not self.driver:
            raise NVMLError("Driver Not Loaded")
        self.open += 1

    def nvmlShutdown(self):
        self.open -= 1

    def nvmlDeviceGetCount(self):
        return len(self.counters)

    def nvmlDeviceGetHandleByIndex(self, index):
        return f"handle {index}"

    def nvmlDeviceGetTotalEnergyConsumption(self, handle):
        counted = self.counters[int(handle.removeprefix("handle "))]
        if counted is None:
            raise NVMLError("Not Supported")
        return counted


@pytest.fixture
def nvml(monkeypatch):
    stand_in = StandIn([5_000, None, 7_000])
    monkeypatch.setitem(sys.modules, "pynvml", stand_in)
    return stand_in


def test_each_gpus_energy_counts_from_the_beginning(nvml):
    with gpu_energy() as joules:
        assert joules() == {"0": 0.0, "2": 0.0}
        nvml.counters[:] = [6_500, None, 7_000]
        assert joules() == {"0": 1.5, "2": 0.0}
        nvml.counters[2] = None  # it has fallen off the bus
        assert joules() == {"0": 1.5}
    assert nvml.open == 0


@pytest.mark.parametrize("nvml_module", [StandIn([]), StandIn([1], driver=False), None])
def test_without_a_gpu_a_driver_or_the_package_there_is_no_energy(monkeypatch, nvml_module):
    monkeypatch.setitem(sys.modules, "pynvml", nvml_module)
    with gpu_energy() as joules:
        assert joules() == {}
    assert nvml_module is None or nvml_module.open == 0


async def recorded(log, work=lambda: None, turns=0):
    """What happens while a run's resources are recorded."""
    async with recorded_resources(log):
        work()
        for _ in range(turns):
            await asyncio.sleep(0)


def test_the_log_has_processor_time_and_energy_at_the_end_of_a_session(nvml, tmp_path):
    def work():
        nvml.counters[0] += 2_000
        sum(range(200_000))

    with RunLog(tmp_path, (64, 4096)) as log:
        asyncio.run(recorded(log, work))
    session, used = read_events(tmp_path)
    assert session.limits == (64, 4096)
    assert used.cpu_s > 0
    assert used.energy_j == {"0": 2.0, "2": 0.0}


def test_a_session_that_goes_on_is_written_down_now_and_then(tmp_path, monkeypatch):
    monkeypatch.setattr(run, "INTERVAL_S", 0.0)
    with RunLog(tmp_path) as log:
        asyncio.run(recorded(log, turns=10))
    used = [event.cpu_s for event in read_events(tmp_path) if isinstance(event, Resources)]
    assert len(used) > 2
    assert used == sorted(used)


def test_a_full_disk_is_not_reported_from_here(tmp_path, monkeypatch):
    def full(log, event):
        raise RunError("full")

    with RunLog(tmp_path) as log:
        asyncio.run(recorded(log, lambda: monkeypatch.setattr(RunLog, "write", full)))


def test_what_sessions_have_used_adds_up_and_the_last_word_of_each_counts():
    log = [
        SessionBegan(t=0.0, time="", version=VERSION, limits=(8, 100)),
        Resources(t=1.0, cpu_s=0.5),
        Resources(t=4.0, cpu_s=1.0, energy_j={"0": 10.0, "1": 5.0}),
        SessionBegan(t=0.0, time="", version=VERSION),  # killed before it said anything
        SessionBegan(t=0.0, time="", version=VERSION, limits=(4, 50)),
        Resources(t=2.0, cpu_s=2.0, energy_j={"0": 1.0}),
    ]
    measures = Measures.of(log)
    assert measures.cpu_s == 3.0
    assert measures.cpu_share == 3.0 / 6.0
    assert measures.energy_j == 16.0
    assert measures.run.limits == (4, 50)
    silent = Measures.of([SessionBegan(t=0.0, time="", version=VERSION)])
    assert (silent.cpu_s, silent.cpu_share) == (None, None)
    assert (silent.energy_j, silent.run.limits) == (None, None)


def test_a_run_has_its_limits_and_its_processor_time(session, tmp_path):
    list(session.solve_many([("Compute 2 + 2.", "4")], n=4, out=tmp_path / "run"))
    measures = Measures.of(read_events(tmp_path / "run"))
    assert measures.cpu_s > 0
    assert 0 < measures.batch_utilization("generator") < 1
    assert 0 < measures.batch_utilization("verifier") < 1
