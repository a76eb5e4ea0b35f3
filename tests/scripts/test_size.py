"""What scripts/run size counts, in a small checkout."""

import pytest
from scripts import size

FILES = {
    "orchestrator/tts/runs/__init__.py": '"""Of runs."""\n',
    "orchestrator/tts/runs/events.py": "class Generated(Event, tag='generated'): ...\n",
    "orchestrator/tts/runs/state.py": """
def apply(event):
    if isinstance(event, (Generated, events.Scored)):
        return config["n"]
""",
    "orchestrator/tts/search/state.py": """
def read(summary, name):
    'Of a run.'
    match name:
        case events.Generated(): return summary[name]
""",
    "orchestrator/tts/cli/state.py": "def long():\n" + "    x = run.summary['a']\n" * 60,
    "build/tts/build/spec.py": "assert isinstance(1, int)\n",
    "scripts/chaos": "#!/usr/bin/env python\n",
    "scripts/test": "#!/usr/bin/env bash\n",
    "tests/test_all.py": "\n\n",
}


@pytest.fixture
def checkout(tmp_path):
    for name, text in FILES.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    return tmp_path


def test_every_number_counts_what_it_says(checkout):
    assert size.sizes(checkout) == {
        "source lines": 1 + 1 + 4 + 5 + 61 + 1,
        "modules": 6,
        "packages": 4,
        "packages directly in the orchestrator": 1,
        "readers of the log": 2,
        "look-ups by string key of config and summary": 61,
        "functions": 3,
        "functions over 60 lines": 1,
        'docstrings that begin with "Of "': 2,
        "file names more than once": 1,
        "file names more than twice": 1,
        "lines of scripts": 2,
        "Python programs without an extension": 1,
        "lines of tests": 2,
    }


def test_a_revision_is_counted_as_git_has_it(monkeypatch):
    seen = []
    monkeypatch.setattr(size, "sizes", lambda root: seen.extend(root.iterdir()) or {})
    size.sizes_at("HEAD")
    assert {path.name for path in seen} == set(size.FOLDERS)
