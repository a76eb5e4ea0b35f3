"""What is no question, or no argument, is refused in a sentence before anything is sent."""

import pytest
from tests.endpoints.scripted import ScriptedVerifier
from tests.session.endpoints import Hanging

from tts.base.errors import ConfigError, DatasetError
from tts.problem import Problem, Turn
from tts.session import Session
from tts.session.arguments import SolveOptions, StrategyParameters, config_of
from tts.strategies.catalog import STRATEGIES

SAME = Problem("same", "1 + 1")


@pytest.fixture(scope="module")
def session(tiny_deployment):
    """One whose engines must not be asked."""
    hanging = Hanging()
    with Session.open(tiny_deployment, generator=hanging, verifier=ScriptedVerifier()) as session:
        yield session
    assert not hanging.asked.is_set()


def message(content, role="user"):
    return {"role": role, "content": content}


def said_before(*history):
    return Problem("p", "1 + 1", history=history)


NO_QUESTIONS = [
    "",
    "  ",
    None,
    5,
    b"1 + 1",
    "7 " * 400,
    ("", "2"),
    ("1 + 1",),
    ("1 + 1", None),
    ("1 + 1", 2),
    ["1 + 1"],
    ["1 + 1", "2 + 2"],
    "half a pair: \ud800",
    [],
    [{"role": "user"}],
    [message("1 + 1"), "4"],
    [message("1 + 1"), message("It is 2.", "assistant")],
    [message("Be brief.", "system")],
    [message(" ")],
    [message("x", "tool"), message("1 + 1")],
    [message("\ud800"), message("1 + 1")],
    [message("7 " * 400), message("1 + 1")],
    Problem("p", ""),
    Problem("p", None),
    Problem("", "1 + 1"),
    Problem(5, "1 + 1"),
    Problem("\ud800", "1 + 1"),
    Problem("p", "1 + 1", 2),
    Problem("p", "1 + 1", "\ud800"),
    Problem("p", "1 + 1", "2", level=[1]),
    Problem("p", "1 + 1", history=[Turn("user", "x")]),
    said_before("Be brief."),
    said_before(Turn("user", 5)),
    said_before(Turn("user", "\ud800")),
    said_before(Turn("tool", "x")),
]


@pytest.mark.parametrize("question", NO_QUESTIONS, ids=lambda each: repr(each)[:60])
def test_what_is_no_question_is_refused_with_its_place(session, tmp_path, question):
    with pytest.raises(DatasetError):
        session.solve(question, n=4)
    with pytest.raises(DatasetError) as refused:
        session.solve_many(["1 + 1", question], n=4, out=tmp_path / "run")
    own = question.id if isinstance(question, Problem) else "2"
    assert repr(own)[1:-1] in refused.value.message
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    "questions",
    [None, 5, [], "1 + 1", b"1 + 1", {"1 + 1": "2"}, {"1 + 1"}, range(0), iter(()), [SAME] * 2],
    ids=lambda questions: type(questions).__name__,
)
def test_what_is_no_list_of_questions_is_refused(session, questions):
    with pytest.raises(DatasetError):
        list(session.solve_many(questions, n=4))


WRONG = [
    ("seed", "7"),
    ("seed", None),
    ("seed", 1.5),
    ("seed", True),
    ("schedule", "fast"),
    ("schedule", None),
    ("speculation", "sometimes"),
    ("priority", "high"),
    ("deadline_s", "soon"),
    ("deadline_s", -1),
    ("deadline_s", float("nan")),
    ("on_step", 5),
    ("answer_of", 5),
    ("equal", "strict"),
    ("out", 5),
    ("out", ""),
    ("out", "a\0b"),
    *(("in_flight", value) for value in (0, -1, 1.5, "x")),
    *(("budget_tokens", value) for value in (0, -1, 1.5, "many", True)),
    *(("parameters", value) for value in (None, 5, ["n"], {1: 2})),
]


@pytest.mark.parametrize(("name", "value"), WRONG)
def test_an_argument_of_a_wrong_kind_is_named(session, name, value):
    ask = session.solve_many if name == "in_flight" else session.solve
    with pytest.raises(ConfigError, match=f"^{name} is "):
        ask("1 + 1" if ask == session.solve else ["1 + 1"], n=4, **{name: value})


@pytest.mark.parametrize(
    ("name", "value"),
    [("n", 0), ("n", "x"), ("max_tokens", 0), ("temperature", -1), ("top_p", 2), ("seed", "x")],
)
def test_a_sampling_parameter_out_of_its_range_is_named(session, name, value):
    with pytest.raises(ConfigError, match=f"^{name} is"):
        session.generate("Hello", **{name: value})


@pytest.mark.parametrize("prompt", ["", None, 5, [], [5], [{"role": "user"}]], ids=repr)
def test_what_is_no_prompt_is_refused(session, prompt):
    with pytest.raises(DatasetError):
        session.generate(prompt)


@pytest.mark.parametrize(
    ("question", "candidates"),
    [
        *[("", ["a"]), (None, ["a"]), ("q", None), ("q", "abc"), ("q", [None]), ("q", [])],
        *[("q", [" "]), ("q", ["a", []]), ("q", [["a", " "]]), ("q", [["a", 1]])],
    ],
)
def test_what_cannot_be_scored_is_refused(session, question, candidates):
    with pytest.raises(DatasetError):
        session.score(question, candidates)


@pytest.mark.parametrize("deployment", [None, 5, b"demo", ["demo"]])
def test_what_is_no_deployment_is_refused(deployment):
    with pytest.raises(ConfigError, match="The deployment is"):
        Session.open(deployment)


def test_the_options_of_a_call_name_the_parameters_of_every_built_in_strategy():
    built_in = {name for each in STRATEGIES.values() for name in each.config.model_fields}
    assert set(StrategyParameters.__annotations__) == built_in
    calls = {"in_flight", "resume", "repair", "priority"}
    assert not calls & set(SolveOptions.__annotations__)


def test_parameters_stand_beside_the_strategy_or_in_a_mapping():
    options = {"n": 4, "seed": 3, "parameters": {"patience": 2}, "budget_tokens": 9}
    config = config_of(options, "demo", in_flight=5)
    assert config.parameters == {"n": 4, "patience": 2}
    assert (config.seed, config.in_flight, config.limits.budget_tokens) == (3, 5, 9)
    assert config_of({"n": None}, "demo").parameters == {}
