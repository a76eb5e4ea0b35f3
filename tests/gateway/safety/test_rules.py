import pytest

from tts.base.errors import ConfigError, ContentBlocked
from tts.gateway.safety.filters import FilterChain, read_rules
from tts.gateway.safety.matching import REDACTED


@pytest.fixture
def chain_of(tmp_path):
    def chain(text, name="filters.yaml"):
        file = tmp_path / name
        file.write_text(text, encoding="utf-8")
        return FilterChain.load(file)

    return chain


def answered(chain, text):
    stream = chain.output()
    return stream.feed(text) + stream.end()


def test_a_yaml_file_says_what_is_found_where_and_what_becomes_of_it(chain_of):
    chain = chain_of(
        r"""
- term: project halcyon
  action: redact
  applies_to: output
- pattern: \b\d{3}-\d{2}-\d{4}\b
  name: social security number
- term: poison
  applies_to: input
"""
    )
    assert answered(chain, "Project Halcyon and poison") == f"{REDACTED} and poison"
    assert chain.input("project halcyon") == "project halcyon"
    for refused in (lambda: chain.input("no 123-45-6789!"), lambda: answered(chain, "123-45-6789")):
        with pytest.raises(ContentBlocked, match="rule 'social security number'"):
            refused()
    with pytest.raises(ContentBlocked, match="rule 'rule 3'"):
        chain.input("is it poison?")


def test_a_file_of_lines_blocks_terms_and_patterns(chain_of):
    chain = chain_of("# names\nhalcyon\n\n  re: sk-[a-z0-9]{4,64}\n", "filters.txt")
    for text in ("HALCYON!", "sk-abc1"):
        with pytest.raises(ContentBlocked):
            chain.input(text)
        with pytest.raises(ContentBlocked):
            answered(chain, text)
    assert chain.input("# names, sk-") == "# names, sk-"


@pytest.mark.parametrize(
    ("options", "found", "not_found"),
    [
        ("", ["ass", "an ASS.", "«ass»"], ["class", "assign", "ass_"]),
        ("inside_words: true", ["class", "ASSign"], ["as s"]),
        ("match_case: true", ["ass"], ["Ass", "class"]),
    ],
)
def test_terms_are_whole_words_of_any_case_unless_asked_otherwise(
    chain_of, options, found, not_found
):
    chain = chain_of(f"- term: ass\n  action: redact\n  {options}\n")
    assert all(REDACTED in chain.input(text) for text in found)
    assert [chain.input(text) for text in not_found] == not_found


@pytest.mark.parametrize(
    ("text", "wrong"),
    [
        ("term: x", "must be a list of rules"),
        ("- 5", "rule 1: Expected `object`"),
        ("- {term: x, acton: redact}", "rule 1: .*unknown field `acton`"),
        ("- {term: x, action: remove}", "rule 1: Invalid enum value 'remove'"),
        ("- {name: x}", "rule 1: A rule has a term or a pattern"),
        ("- {term: a, pattern: b}", "rule 1: A rule has a term or a pattern"),
        ("- {term: a}\n- {term: ' '}", "rule 2: The term is empty"),
        ("- {pattern: 'a(b'}", r"rule 1: .* is wrong: missing \)"),
        ("- {pattern: '(a)\\1'}", "RE2 does not read"),
        ("- {pattern: '^a'}", r"\^ and \$ are not supported"),
        ("- {pattern: '(?=a)b'}", "RE2 does not read"),
        ("- {pattern: '\\ba|b'}", "Of a choice"),
        ("- {pattern: 'a', match_case: true}", "are for terms"),
        ("- {pattern: 'a+'}", "'rule 1' can match more than 1,000"),
        ("- {pattern: 'a?'}", "'rule 1' matches the empty text"),
        ("- [", "cannot be used"),
    ],
)
def test_a_wrong_rule_is_named_with_what_is_wrong(chain_of, text, wrong):
    with pytest.raises(ConfigError, match=wrong):
        chain_of(text)


def test_a_file_that_is_not_there_is_a_sentence(tmp_path):
    with pytest.raises(ConfigError, match="no filter file"):
        read_rules(tmp_path / "none.txt")
