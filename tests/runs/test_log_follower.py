"""Following a log as it grows gives what reading the whole of it gives."""

import itertools
import shutil
import tempfile
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tts.build.errors import RunError
from tts.runs.events import VERSION, ProblemStarted, Session, encode
from tts.runs.folder import EVENTS
from tts.runs.log import Damage, Follower, Restarted, RunLog, read_lines

V1_LOG = Path(__file__).parent / "v1_run" / EVENTS


def line(number):
    return encode(ProblemStarted(t=number, problem=f"p{number}", question="x" * number)) + b"\n"


LINES = st.lists(
    st.one_of(
        st.integers(0, 99).map(line),
        st.sampled_from([b"\n", b"{not json\n", b"\xff\n", b'{"event": "unknown", "t": 0}\n']),
    ),
    max_size=12,
)
CUTS = st.lists(st.integers(0, 400), max_size=12)


def told(found):
    return (found.where, found.what) if isinstance(found, Damage) else found


@given(LINES, CUTS, st.integers(1, 3))
def test_in_any_chunks_and_with_calls_left_early_it_is_reading_the_whole(lines, cuts, most):
    content = b"".join(lines)
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        follower = Follower(folder)
        found = list(follower.read())
        for begin, end in itertools.pairwise([0, *sorted(cuts), len(content)]):
            with (folder / EVENTS).open("ab") as log:
                log.write(content[begin:end])
            found += itertools.islice(follower.read(), most)
        found += follower.read()
        assert [told(each) for each in found] == [told(each) for each in read_lines(folder)]
        assert list(follower.read()) == []


def test_half_a_line_that_a_resumed_run_cuts_off_is_never_seen(tmp_path):
    follower = Follower(tmp_path)
    (tmp_path / EVENTS).write_bytes(line(1) + line(2)[:-3])
    first = list(follower.read())
    with RunLog(tmp_path) as log:
        log.write(ProblemStarted(t=0.5, problem="resumed"))
    first += follower.read()
    assert first == list(read_lines(tmp_path))
    assert [type(event) for event in first] == [ProblemStarted, Session, ProblemStarted]


@pytest.mark.parametrize(
    "other",
    [
        line(1) + line(9) + line(3) + line(4),  # as long, but another
        line(1),  # shorter
        b"",
    ],
)
@pytest.mark.parametrize("in_place", [True, False])
def test_a_log_that_is_another_one_is_read_from_its_start(tmp_path, other, in_place):
    file = tmp_path / EVENTS
    file.write_bytes(line(1) + line(2) + line(3))
    follower = Follower(tmp_path)
    assert len(list(follower.read())) == 3
    if in_place:
        file.write_bytes(other)
    else:
        (tmp_path / "new").write_bytes(other)
        (tmp_path / "new").replace(file)
    assert list(follower.read()) == [Restarted(), *read_lines(tmp_path)]


def test_a_log_that_is_copied_and_removed_and_comes_back_is_read_again(tmp_path):
    follower = Follower(tmp_path)
    assert list(follower.read()) == []
    shutil.copy(V1_LOG, tmp_path)
    whole = list(follower.read())
    assert whole == list(read_lines(tmp_path))
    (tmp_path / EVENTS).unlink()
    assert list(follower.read()) == [Restarted()]
    assert list(follower.read()) == []
    shutil.copy(V1_LOG, tmp_path)
    assert list(follower.read()) == whole


def test_a_log_of_a_newer_version_or_that_cannot_be_read_is_refused(tmp_path):
    (tmp_path / EVENTS).write_bytes(encode(Session(t=0, time="", version=VERSION + 1)) + b"\n")
    with pytest.raises(RunError, match="line 1: the log has schema version"):
        list(Follower(tmp_path).read())
    (tmp_path / EVENTS).unlink()
    (tmp_path / EVENTS).mkdir()
    with pytest.raises(RunError, match="cannot be read"):
        list(Follower(tmp_path).read())
