"""What is asked for: questions, arguments, strategies and plans; what is refused; doubts."""

import functools

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.cli.runner import written
from tests.endpoints.scripted import ScriptedVerifier
from tests.session.endpoints import Hanging
from tests.strategies.installed import install_the_example

from tts.base.errors import ConfigError, DatasetError, RunError
from tts.build.spec import VerifierCalibration, load_deployment
from tts.datasets.demo import EXAMPLES
from tts.problem import Problem, Turn
from tts.runs.config import RunConfig, check_same
from tts.search import BeamSearchConfig, SampleSearchConfig, SearchConfig, node_seed
from tts.session import Session
from tts.session.arguments import SolveOptions, StrategyParameters, config_of
from tts.session.outcome import doubt_of_answer, doubt_of_question, doubts, probability_of
from tts.session.plan import Plan, reaches_for, refuse_functions
from tts.session.questions import as_problem, as_problems
from tts.session.strategy import choose
from tts.strategies.catalog import STRATEGIES

TEXTS = st.text(min_size=1).filter(str.strip)
QUESTIONS = st.one_of(TEXTS, st.tuples(TEXTS, TEXTS))
KEYS = {
    "deployment",
    "deployment_source",
    "deployment_digest",
    "prompting",
    "dataset",
    "limit",
    "seed",
    "strategy",
    "vote",
    "parameters",
    "context",
    "schedule",
    "speculation",
    "in_flight",
    "problem_ids",
    "problems_digest",
}


@given(st.lists(QUESTIONS, min_size=1, max_size=8))
def test_texts_and_pairs_are_named_by_their_place_and_kept_as_they_are(questions):
    problems = as_problems(questions)
    assert [problem.id for problem in problems] == [str(i + 1) for i in range(len(questions))]
    for question, problem in zip(questions, problems, strict=True):
        given = (question, None) if isinstance(question, str) else question
        assert (problem.question, problem.answer) == given


@given(TEXTS, TEXTS)
def test_a_problem_keeps_its_own_name(identity, question):
    problem = Problem(identity, question)
    assert as_problem(problem, "other") is problem


@pytest.mark.parametrize("name", STRATEGIES)
def test_a_strategy_by_name_and_by_its_config_object_are_the_same(tiny_deployment, name):
    by_name = choose(name, tiny_deployment, {})
    again = choose(by_name.config, tiny_deployment, {})
    assert again.config == by_name.config
    assert STRATEGIES[again.name].config is STRATEGIES[name].config
    assert again.function is None


def test_the_default_of_max_tokens_is_made_to_fit_and_a_given_one_is_refused(tiny_deployment):
    context = tiny_deployment.generator.max_seq_len
    assert choose(BeamSearchConfig(n=4), tiny_deployment, {}).config.max_tokens == context
    with pytest.raises(ConfigError, match="max_tokens"):
        choose(BeamSearchConfig(n=4, max_tokens=context + 1), tiny_deployment, {})


class OwnConfig(SearchConfig):
    """A strategy that no catalog has."""

    def new_search(self, seed, answer_form):
        return SampleSearchConfig(n=self.n).new_search(seed, answer_form)


def test_a_config_object_of_an_installed_strategy_is_known_by_its_name(
    tiny_deployment, monkeypatch, tmp_path
):
    install_the_example(monkeypatch, tmp_path)
    by_name = choose("shortest", tiny_deployment, {"n": 3})
    by_object = choose(by_name.config, tiny_deployment, {})
    assert by_object == by_name
    assert by_object.function is None


def test_a_config_of_ones_own_and_a_function_are_named_as_what_they_are(tiny_deployment):
    own = choose(OwnConfig(n=2), tiny_deployment, {})
    made = choose(functools.partial(print), tiny_deployment, {})
    assert own.name == own.function
    assert own.name.endswith("test_plan.OwnConfig")
    assert made.name == made.function == "builtins.print"


def test_a_function_gets_the_problem_and_the_seed_of_each_node(tiny_deployment):
    got = []

    def search(problem, seed):
        got.append((problem, seed((0, 1))))
        return SampleSearchConfig(n=1).new_search(seed, lambda text: None)

    chosen = choose(search, tiny_deployment, {})
    chosen.new_search(Problem("p", "Compute 1."), 7)
    assert got == [(Problem("p", "Compute 1."), node_seed(7, "p", (0, 1)))]


@pytest.mark.parametrize(
    ("strategy", "parameters", "refused"),
    [
        ("best-of-n", {}, False),
        ("majority-vote", {"agg_strategy": "min"}, False),
        ("weighted-adaptive-vote", {}, False),
        ("best-of-n", {"agg_strategy": "min"}, True),
        ("beam-search", {}, True),
        ("auto", {}, True),
    ],
)
def test_scores_of_steps_are_refused_where_whole_answers_are_scored(
    tiny_deployment, strategy, parameters, refused
):
    verifier = tiny_deployment.verifier.model_copy(update={"scores": "answers"})
    deployment = tiny_deployment.model_copy(update={"verifier": verifier})

    def plan(spec, **own):
        chosen = choose(strategy, spec, parameters)
        return Plan(RunConfig(), spec, (Problem("a", "Compute 1."),), chosen, **own)

    plan(tiny_deployment)
    plan(deployment, endpoints={"verifier": "the program's own"})
    if not refused:
        plan(deployment)
        return
    with pytest.raises(ConfigError, match=rf"Strategy {strategy}.* scores of steps.* answers") as e:
        plan(deployment)
    assert "greedy" in e.value.hint
    assert "beam-search" not in e.value.hint
    assert "verifier.scores: steps" in e.value.hint


def config(deployment, *, answer_of=None, equal=None, endpoints=None, **changes):
    """The configuration of a run on a deployment, resolved."""
    own = {"answer_of": answer_of, "equal": equal, "endpoints": endpoints or {}}
    strategy = choose("beam-search", deployment, {"n": 4})
    problems = (Problem("a", "Compute 1."),)
    return Plan(RunConfig(**changes), deployment, problems, strategy, **own).config


def test_run_json_has_the_keys_that_it_has_always_had(tiny_deployment):
    assert config(tiny_deployment).to_json().keys() == KEYS
    own = config(tiny_deployment, endpoints={"verifier": "mine.reward"})
    assert own.to_json().keys() == KEYS | {"functions"}


def test_a_prompt_is_part_of_a_run(tiny_deployment):
    update = {"format": "prompted", "prompt": "{question} {steps} {step}"}
    verifier = tiny_deployment.verifier.model_copy(update=update)
    asked = tiny_deployment.model_copy(update={"verifier": verifier})
    assert config(asked).to_json()["prompting"]["verifier"]["prompt"] == update["prompt"]


def test_every_function_that_takes_part_is_named_in_run_json(tiny_deployment):
    functions = config(
        tiny_deployment,
        endpoints={"generator": "mine.Model"},
        answer_of=str.strip,
        equal=str.__eq__,
    ).functions
    assert functions == {
        "generator": "mine.Model",
        "answer_of": "builtins.str.strip",
        "equal": "builtins.str.__eq__",
    }


def test_a_plan_is_the_same_as_what_it_has_written_and_as_nothing_else(tiny_deployment, tmp_path):
    before = config(tiny_deployment).to_json()
    check_same(config(tiny_deployment).to_json(), before, tmp_path)
    for change in ({"seed": 1}, {"schedule": "lockstep"}, {"endpoints": {"verifier": "r"}}):
        with pytest.raises(RunError, match="cannot be continued"):
            check_same(config(tiny_deployment, **change).to_json(), before, tmp_path)
    for name, old, why in (
        ("deployment_digest", "old", "deployment_digest was 'old'"),
        ("prompting", {"verifier": {}}, r"prompting\.verifier\.format was None and is now"),
    ):
        with pytest.raises(RunError, match=f"its {why}"):
            check_same(before, {**before, name: old}, tmp_path)


def test_a_command_has_none_of_a_programs_functions(tiny_deployment, tmp_path):
    refuse_functions(config(tiny_deployment), tmp_path)
    with pytest.raises(RunError, match=r"verifier mine\.reward"):
        refuse_functions(config(tiny_deployment, endpoints={"verifier": "mine.reward"}), tmp_path)


def test_unscored_chains_are_named_for_their_strategy(tiny_deployment):
    chains = choose(SampleSearchConfig(n=3, scored=False), tiny_deployment, {})
    assert (chains.name, chains.vote) == ("majority-vote", "majority")


@pytest.mark.parametrize(
    ("endpoints", "elsewhere"),
    [([], False), (["localhost:1", "[::1]:2"], False), (["localhost:1", "gpu-1:8001"], True)],
)
def test_a_deployment_that_names_other_machines_leads_there(tmp_path, endpoints, elsewhere):
    reached = ["other machines"] if elsewhere else []
    assert reaches_for(str(written(tmp_path, endpoints=endpoints))) == reached


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


@pytest.fixture(scope="module")
def demo():
    return load_deployment("demo")


@pytest.mark.parametrize(
    ("score", "probability", "doubtful"),
    [
        (0.4, 0.3, True),
        (0.4, 0.6, False),
        (0.99, 0.2, True),
        (0.01, None, True),
        (0.5, None, False),
        (None, 0.1, False),
    ],
)
def test_an_answer_is_doubted_by_its_probability_or_else_by_its_score(
    demo, score, probability, doubtful
):
    assert bool(doubt_of_answer(demo, score, probability)) == doubtful


def test_a_likelihood_is_no_probability(demo):
    judge = demo.verifier.model_copy(update={"format": "likelihood"})
    assert doubt_of_answer(demo.model_copy(update={"verifier": judge}), 0.01, None) is None


def test_a_probability_is_known_only_of_a_measured_verifier(demo):
    assert probability_of(demo, 0.5) is None
    measured = VerifierCalibration(final=[(0.0, 0.1), (1.0, 0.5)])
    verifier = demo.verifier.model_copy(update={"calibration": measured})
    assert probability_of(demo.model_copy(update={"verifier": verifier}), 0.5) == 0.3


@pytest.mark.parametrize("question", EXAMPLES)
def test_the_demo_pair_knows_its_examples(demo, question):
    assert doubts(demo, question, 0.99, 0.9) == []


def test_a_question_that_the_demo_pair_does_not_know_is_a_warning(demo, tiny_deployment):
    (warning,) = doubts(demo, "What is 2 + 2?", 0.99, None)
    assert warning.endswith("The answer may well be wrong.")
    assert doubt_of_question(tiny_deployment, "What is 2 + 2?") is None
