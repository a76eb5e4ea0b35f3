import pytest
from tests.strategies.installed import install

from tts.base.errors import ConfigError, ContentBlocked
from tts.gateway.safety import filters
from tts.gateway.safety.filters import Chained, FilterChain, Whole

SOURCE = """
from tts.base.errors import ContentBlocked

class EverySecond:
    at = 0

    def feed(self, text):
        kept = text[self.at % 2 :: 2]
        self.at += len(text)
        return kept

    def end(self):
        return "."

def shout(text):
    if "quiet" in text:
        raise ContentBlocked("No shouting here.")
    return text.upper()

number = 5
"""


@pytest.fixture
def installed(monkeypatch, tmp_path):
    """Filters of another package."""
    names = {
        "every-second": "mine:EverySecond",
        **{name: f"mine:{name}" for name in ("shout", "number", "gone")},
    }
    install(monkeypatch, tmp_path / "mine", "mine", "mine", SOURCE, names, group="tts.filters")


def test_without_filters_text_passes_as_it_is():
    chain = FilterChain.load()
    stream = chain.output()
    assert (chain.input("a"), stream.feed("b"), stream.end()) == ("a", "b", "")


def test_a_function_gets_each_text_whole_and_a_class_as_it_comes(installed):
    chain = FilterChain.load(names=["every-second", "shout"])
    assert chain.input("abcdef") == "ACE."
    stream = chain.output()
    assert stream.feed("abc") == stream.feed("def") == ""
    assert stream.end() == "ACE."
    with pytest.raises(ContentBlocked, match="No shouting"):
        chain.input("q-u-i-e-t-")


def test_the_end_of_a_filter_passes_through_those_after_it(installed):
    chained = Chained([Whole(lambda text: text * 2), filters.load_filter("every-second")()])
    assert chained.feed("abc") == ""
    assert chained.end() == "acb."


def test_rules_of_a_file_come_before_filters_by_name(installed, tmp_path):
    file = tmp_path / "filters.yaml"
    file.write_text("- {term: secret, action: redact}\n- {term: quiet, applies_to: input}\n")
    chain = FilterChain.load(file, ["shout"])
    assert chain.input("a secret") == "A [REDACTED]"
    with pytest.raises(ContentBlocked, match="rule 2"):
        chain.input("quiet")
    stream = chain.output()
    stream.feed("quiet")
    with pytest.raises(ContentBlocked, match="No shouting"):
        stream.end()


@pytest.mark.parametrize(
    ("name", "wrong"),
    [
        ("none", "There is no filter 'none'"),
        ("number", "must be a function from text to text"),
        ("gone", "cannot be loaded: AttributeError"),
    ],
)
def test_what_is_no_filter_is_refused_by_name(installed, name, wrong):
    with pytest.raises(ConfigError, match=wrong):
        filters.load_filter(name)
