import re

from tests.gateway.observability.counted import counted


def test_the_gateways_metrics_have_help_types_and_good_names():
    metrics = counted()
    text = metrics.exposition()
    for name, kind in re.findall(r"# TYPE (\S+) (\S+)", text):
        assert name.startswith("tts_gateway_")
        assert re.search(f"# HELP {name} .+\\.\n", text)
        assert (kind == "counter") == name.endswith("_total")


def test_every_series_and_bucket_has_its_name():
    """Dashboards and alerts name them: no bound may be written otherwise."""
    lines = counted().exposition().splitlines()
    names = {line.rpartition(" ")[0] for line in lines if not line.startswith("#")}
    assert 'tts_gateway_tokens_total{kind="prompt",model="demo"}' in names
    bounds = {re.search('le="(.*?)"', name)[1] for name in names if "_bucket" in name}
    shown = """0.0001 0.00025 0.0005 0.001 0.0025 0.005 0.01 0.025 0.05 0.1 0.25 0.5 1.0 2.5 5.0
    10.0 30.0 60.0 120.0 300.0 600.0 16.0 64.0 256.0 1024.0 4096.0 16384.0 65536.0 262144.0
    1.048576e+06 +Inf"""
    assert bounds == set(shown.split())
    assert not any("_created" in name for name in names)
