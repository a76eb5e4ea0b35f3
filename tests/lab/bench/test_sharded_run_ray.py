"""Shards on a stand-in of Ray, which solves them here."""

import sys
from types import SimpleNamespace

import pytest
from msgspec.structs import replace
from tests.lab.bench.runs import WANTED as OF_THREE

from tts.base.errors import ConfigError, EndpointUnavailable, RequestRefused, RunError
from tts.lab.bench import sharded_run
from tts.lab.bench.single_run import run_bench
from tts.lab.observer import Observer
from tts.runs.summary import read_summary

WANTED = replace(OF_THREE, limit=9, schedule="decoupled")
SERVERS = ("one:1", "two:2")


def run_on_ray(config, out):
    return sharded_run.run_on_ray(config, out, Observer(), endpoints=SERVERS)


class FakeRay:
    """Calls what is remote here, when it is waited for."""

    def __init__(self):
        self.options = None
        self.fails = {}
        self.solved = []

    def init(self, **options):
        self.options = options

    def shutdown(self):
        self.options = None

    def remote(self, function):
        def call(config, shard, endpoint, folder):
            def solve():
                if endpoint in self.fails:
                    return self.fails[endpoint]
                self.solved.append((endpoint, str(shard)))
                return function(config, shard, endpoint, folder)

            return solve

        return SimpleNamespace(options=lambda **options: SimpleNamespace(remote=call))

    def get(self, running):
        return [solve() for solve in running]


@pytest.fixture
def ray(engines, tiny_deployment, monkeypatch):
    fake = FakeRay()
    monkeypatch.setitem(sys.modules, "ray", fake)
    monkeypatch.setattr(sharded_run, "load_checked", lambda name: tiny_deployment)
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    monkeypatch.setenv("RAY_USAGE_STATS_ENABLED", "0")
    return fake


def test_every_shard_is_solved_once_and_the_merged_run_is_the_whole_run(ray, tmp_path):
    whole = run_bench(WANTED, tmp_path / "whole", Observer())
    merged = run_on_ray(WANTED, tmp_path / "merged")
    assert read_summary(merged).tree_digest == read_summary(whole).tree_digest
    assert sorted(shard for _, shard in ray.solved) == ["1/2", "2/2"]
    assert ray.options is None


def test_a_server_that_is_lost_ends_the_run_and_the_same_command_goes_on(ray, tmp_path):
    ray.fails = {"two:2": EndpointUnavailable("gone")}
    with pytest.raises(EndpointUnavailable):
        run_on_ray(WANTED, tmp_path / "merged")
    assert ray.solved == [("one:1", "1/2")]
    ray.fails = {}
    run_on_ray(WANTED, tmp_path / "merged")
    with pytest.raises(RunError, match="already holds a run"):
        run_on_ray(WANTED, tmp_path / "merged")


def test_shards_of_another_run_in_the_folder_are_refused(ray, tmp_path):
    ray.fails["one:1"] = RequestRefused("too long")
    with pytest.raises(RequestRefused):
        run_on_ray(WANTED, tmp_path / "merged")
    ray.fails = {}
    assert ray.solved
    with pytest.raises(RunError, match="cannot be continued: its seed was 0 and is now 1"):
        run_on_ray(replace(WANTED, seed=1, dataset_seed=0), tmp_path / "merged")


def test_what_ray_cannot_do_is_refused(ray, tmp_path, monkeypatch):
    with pytest.raises(ConfigError, match="No server is named"):
        sharded_run.run_on_ray(WANTED, tmp_path, Observer())
    for impossible in ({"shard": "1/2"}, {"strategy": "all"}):
        with pytest.raises(ConfigError, match="whole run of one strategy"):
            run_on_ray(replace(WANTED, **impossible), tmp_path)
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(ConfigError, match="Ray is not installed") as refused:
        run_on_ray(WANTED, tmp_path / "merged")
    assert "pip install 'ray>=" in refused.value.hint
