"""The gateway's page in a real browser: chats, searches, settings, history, hostile answers."""

import json
import re

import pytest
from tests.end_to_end.commands import Tts
from tests.end_to_end.gateways import gateway
from tests.reports.page.test_browser import CHROMIUM, QUIET

from tts.gateway.safety.keys import KeyStore
from tts.gateway.safety.limits import KeyLimits

sync_api = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
pytestmark = pytest.mark.server

QUESTION = "Compute 12 + 30 - 5."
CHAT = "**/v1/chat/completions"


@pytest.fixture(scope="module")
def tts(new_served_home):
    """A home with a key of its own, whose server runs."""
    return Tts(new_served_home())


@pytest.fixture(scope="module")
def key(tts):
    """An API key; the gateway that starts after it wants one."""
    store = KeyStore(tts.home / "gateway" / "gateway.db")
    return store.create("browser", KeyLimits())[0]


@pytest.fixture(scope="module")
def address(tts, key):
    with gateway(tts) as address:
        yield address


@pytest.fixture(scope="module")
def browser():
    if CHROMIUM is None:
        pytest.skip("there is no chromium here")
    sync_api.expect.set_options(timeout=60_000)  # a busy machine is no failure
    with sync_api.sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=QUIET)
        yield browser
        browser.close()


PHONE = {"width": 390, "height": 844}


@pytest.fixture(scope="module")
def tab(browser):
    """A tab, which takes longer to open than a page in it."""
    tab = browser.new_page()
    tab.context.set_default_timeout(60_000)
    tab.on("console", lambda message: tab.said.append(message.text))
    tab.on("pageerror", lambda error: tab.said.append(str(error)))
    tab.on("dialog", lambda dialog: tab.said.append(dialog.message) or dialog.dismiss())
    tab.on("request", lambda request: tab.asked.append(request.url))
    tab.on("request", lambda request: request.post_data and tab.sent.append(request))
    return tab


@pytest.fixture
def page(tab, address):
    """The page as it opens, on a phone, with what it has said and asked for."""
    tab.said, tab.asked, tab.sent = [], [], []
    tab.set_viewport_size(PHONE)
    tab.goto(address)
    yield tab
    tab.unroute_all()
    tab.goto(f"{address}/health")
    tab.evaluate("localStorage.clear()")


@pytest.fixture
def opened(page, key):
    """The page with its key, ready for a question."""
    use_key(page, key)
    page.said.clear()  # of the refusal, which the browser notes
    return page


def use_key(page, key):
    page.fill("#key", key)
    page.click("#key-form button")
    sync_api.expect(page.locator("#key-form")).to_be_hidden()
    sync_api.expect(page.locator("#examples button").first).to_be_visible()


def choose(page, model):
    page.select_option("#model", model)
    about = model.partition(":")[2] or "One sample"
    sync_api.expect(page.locator("#about")).to_contain_text(about)


def ask(page, question, says="Answered."):
    page.fill("#question", question)
    page.click("#go")
    sync_api.expect(page.locator("#status")).to_have_text(says)


def bodies(page, path):
    """What the page has posted to a path."""
    return [json.loads(sent.post_data) for sent in page.sent if sent.url.endswith(path)]


def let_stream(page, *chunks):
    """Have the gateway answer with these chunks."""
    events = "".join(f"data: {json.dumps(chunk)}\n\n" for chunk in chunks)
    page.route(CHAT, lambda route: route.fulfill(content_type="text/event-stream", body=events))


def let_answer(page, text):
    """Have the model say this text, in two pieces."""
    middle = len(text) // 2
    deltas = [{"delta": {"content": part}} for part in (text[:middle], text[middle:])]
    choices = [*deltas, {"delta": {}, "finish_reason": "stop"}]
    let_stream(page, *({"choices": [choice]} for choice in choices))


def kept(page):
    return page.evaluate("localStorage.getItem('tts.conversations')")


def test_a_problem_is_searched_with_its_tree_in_view(page, address, key):
    expect = sync_api.expect
    page.set_viewport_size({"width": 1280, "height": 844})
    page.reload()
    expect(page.locator("#key-form")).to_be_visible()
    for closed in ("#failure", "#question", "#settings"):
        assert page.locator(closed).is_hidden(), f"{closed} before a key"
    use_key(page, key)
    page.said.clear()
    assert page.locator("aside details[open]").count() == 0
    page.click("#settings summary")
    page.fill("#field-n", "8")
    ask(page, QUESTION)
    expect(page.locator(".answer")).to_have_text("37")
    expect(page.locator(".verdict .score")).to_have_text("score 0.9961")
    expect(page.locator(".votes")).to_contain_text("weighted vote from 8 completions")
    assert page.locator(".warning").count() == 0
    thoughts = page.locator(".node:not(.root)").count()
    assert f"{thoughts} steps" in page.inner_text(".remarks")
    assert page.locator(".node.completed").count() == 1
    assert page.locator(".steps .current .text .katex").count() == 1
    assert "score 0.9961" in page.inner_text(".steps .current .facts")
    assert page.locator(".answers table").count() == 0, "no other completion is known"
    for width in (1280, 390):
        page.set_viewport_size({"width": width, "height": 844})
        expect(page.locator("#settings[open]")).to_have_count(int(width > 1000))
        assert not re.search("NaN|undefined|null", page.inner_text("body"))
        assert page.evaluate("document.documentElement.scrollWidth") == width
    assert page.evaluate("JSON.stringify([sessionStorage.length, document.cookie])") == '[0,""]'
    assert key not in page.evaluate("JSON.stringify(localStorage)")
    assert not any(key in url for url in page.asked)
    assert {url.split("/")[2] for url in page.asked if not url.startswith("data:")} == {
        address.removeprefix("http://")
    }
    assert page.said == []


def test_the_tree_opens_with_root_and_path_in_view_and_is_walked_by_keyboard(opened):
    page = opened
    ask(page, "Compute (((12 + 30) / 6 + 8) * 4 - 11) / 7.")
    in_view = """([name]) => {
        const box = document.querySelector(".tree").getBoundingClientRect();
        const { left, right, top, bottom } = document.querySelector(name).getBoundingClientRect();
        return left >= box.left && right <= box.right && top >= box.top && bottom <= box.bottom;
    }"""
    for name in (".node.root .shape", ".node.selected .shape"):
        assert page.evaluate(in_view, [name]), name
    page.focus(".tree svg")
    page.keyboard.press("ArrowLeft")
    steps = page.locator(".steps li").count()
    page.keyboard.press("Home")
    assert page.locator(".node.root.selected").count() == 1
    page.keyboard.press("End")
    assert page.locator(".steps li").count() == steps + 1
    width = page.evaluate("document.querySelector('.tree svg').clientWidth")
    page.keyboard.press("+")
    assert page.evaluate("document.querySelector('.tree svg').clientWidth") > width
    page.click("[data-zoom=fit]")
    assert page.evaluate("document.querySelector('.tree svg').clientWidth") <= 390


def test_a_chat_has_follow_ups_which_the_verifier_scores(opened):
    page = opened
    choose(page, "demo")
    page.click("#settings summary")
    assert page.locator("#system").is_disabled()
    assert (
        page.inner_text("#system-help") == "The chat template of this model has no system messages."
    )
    assert page.locator("#parameters-group").is_hidden()
    page.fill("#field-temperature", "0")
    page.fill("#field-max_tokens", "64")
    page.fill("#field-seed", "3")
    ask(page, QUESTION)
    ask(page, "Compute 12 + 30 - 6.")
    first, second = bodies(page, "/v1/chat/completions")
    settings = {"model": "demo", "temperature": 0, "max_tokens": 64, "seed": 3, "stream": True}
    assert settings.items() <= first.items()
    assert "tts" not in first
    assert first["messages"] == [{"role": "user", "content": QUESTION}]
    assert [each["role"] for each in second["messages"]] == ["user", "assistant", "user"]
    assert r"\boxed{37}" in second["messages"][1]["content"]
    answers = page.locator(".turn")
    assert answers.count() == 2
    summary = answers.nth(0).locator(".chat-score")
    sync_api.expect(summary).to_contain_text("The verifier's score: 0.99")
    summary.click()
    assert answers.nth(0).locator(".scores li").count() == 3
    assert page.said == []


def test_a_system_prompt_is_sent_where_the_template_has_one(opened):
    page = opened

    def with_system(route):
        told = route.fetch().json()
        told["tts"]["system_messages"] = True
        route.fulfill(json=told)

    page.route("**/v1/models/demo", with_system)
    let_answer(page, "Yes.")
    choose(page, "demo")
    page.click("#settings summary")
    page.fill("#system", "Be brief.")
    ask(page, QUESTION)
    (body,) = bodies(page, "/v1/chat/completions")
    assert body["messages"] == [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": QUESTION},
    ]


def test_an_answer_that_breaks_off_is_kept_and_says_so(opened):
    page = opened
    choose(page, "demo")
    begin = {"choices": [{"delta": {"content": "So it"}}]}
    let_stream(page, begin, {"error": {"message": "The engines do not answer."}})
    ask(page, QUESTION, "")
    sync_api.expect(page.locator("#failure")).to_have_text("The engines do not answer.")
    assert page.inner_text(".said") == "So it"
    assert page.inner_text(".remarks") == "Broken off"


def test_where_answers_are_filtered_the_text_has_the_answer(opened):
    page = opened
    outcome = {"answer": None, "answers": None, "vote": "weighted", "score": 0.9, "completions": 4}
    answer = {"choices": [{"delta": {"content": "So it is 37."}}]}
    end = {"choices": [{"delta": {}}], "tts": {**outcome, "limit": None, "warnings": []}}
    let_stream(page, answer, end)
    ask(page, QUESTION)
    assert page.inner_text(".verdict") == "score 0.9000"
    assert page.inner_text(".said") == "So it is 37."


def test_the_settings_are_those_of_the_chosen_strategy(opened):
    page = opened
    page.click("#settings summary")
    choose(page, "demo:greedy")
    assert page.get_attribute("#field-temperature", "placeholder") == "0"
    assert page.locator("#field-n").count() == 0
    ask(page, QUESTION)  # which scores nothing, so the page asks for it
    assert "The verifier's score: 0." in page.inner_text(".chat-score")
    choose(page, "demo:beam-search")
    page.fill("#field-n", "4")
    page.fill("#field-beam_width", "2")
    page.select_option("#field-agg_strategy", "min")
    page.check("#field-sort_completed")
    ask(page, QUESTION)
    body = bodies(page, "/v1/chat/completions")[-1]
    assert body["tts"]["parameters"] == {
        "n": 4, "beam_width": 2, "agg_strategy": "min", "sort_completed": True,
    }  # fmt: skip
    page.fill("#field-n", "5")
    page.fill("#question", QUESTION)
    page.click("#go")
    sync_api.expect(page.locator("#failure")).to_contain_text("not a multiple of beam_width")
    assert page.input_value("#question") == QUESTION
    page.click("#defaults")
    sync_api.expect(page.locator("#field-n")).to_have_value("")


def test_an_answer_that_may_be_wrong_has_a_warning(opened):
    page = opened
    ask(page, "What is the capital of France?")
    warnings = " ".join(page.locator(".warning").all_inner_texts())
    assert "The demo pair only knows chains of whole-number operations" in warnings
    assert "The answer may well be wrong." in warnings


MARKDOWN = r"""## Step 1: Set up
Take $\int_0^1 x^2\,dx$ and \(ax^2+bx+c=0\):

$$
x = \frac{-b \pm \sqrt{b^2-4ac}}{2a}
= 3
$$

| $n$ | value |
|:---|---:|
| 1 | **10.5** |

\begin{align}
a &= b + c
\end{align}

- It costs $5 and not $10.
- See [the site](https://example.org).

So it is \boxed{\frac{1}{3}}."""


def test_markdown_and_tex_are_drawn(opened):
    page = opened
    choose(page, "demo")
    let_answer(page, MARKDOWN)
    ask(page, "Show it.")
    said = page.locator(".said")
    assert said.locator("h4").inner_text() == "Step 1: Set up"
    assert said.locator(".katex").count() == 6
    assert said.locator(".katex-display").count() == 2
    assert said.locator("td.align-right strong").inner_text() == "10.5"
    assert "It costs $5 and not $10." in said.inner_text()
    link = said.locator("a")
    assert link.get_attribute("href") == "https://example.org"
    assert "noopener" in link.get_attribute("rel")
    assert page.locator(".warning").first.inner_text().startswith("The demo pair only knows")
    assert page.evaluate("document.fonts.check('16px KaTeX_Main')")
    assert page.evaluate("document.documentElement.scrollWidth") == 390
    assert page.said == []


HOSTILE = r"""<script>alert(1)</script> <img src=x onerror=alert(2)> <b onclick=alert(3)>bold</b>

[click](javascript:alert(4)) [data](data:text/html,<script>alert(5)</script>) <javascript:alert(6)>

![tracker](https://evil.example/pixel.png) [relative](/reports/x) <https://evil.example/>

$\href{javascript:alert(7)}{x}$ $\includegraphics{https://evil.example/x.png}$ $\htmlId{ask}{y}$

$\def\a{\a\a}\a$ $\rule{9999em}{9999em}$ $\kern-400em z$

$\color{red}\unclosed{$ and `</code><script>alert(8)</script>`

"""


ENDS = {
    "braces": "$" + "{" * 3000 + "x" + "}" * 3000 + "$",
    "styles": "$" + r"\bf" * 900 + " x$",
    "fractions": "$" + r"\frac1{" * 400 + "x" + "}" * 400 + "$",
    "blocks": "\n\n".join(["\\["] * 5000),
    "openings": "\\(" * 20_000,
    "many": "$a$ " * 20_000,
    "quotes": "> " * 3000 + "deep",
    "links": "[" * 20_000,
    "long": "x" * 300_000,
}


def test_a_hostile_answer_is_text(opened):
    page = opened
    choose(page, "demo")
    scored = {"data": [{"data": [[0, 1]]}], "tts": {"warnings": []}}
    page.route("**/pooling", lambda route: route.fulfill(json=scored))
    for name, end in ENDS.items():
        page.unroute(CHAT)
        let_answer(page, HOSTILE + end)
        ask(page, "Attack.")
        said = page.locator(".said")
        assert "<script>alert(1)</script>" in said.inner_text(), name
        assert "<img src=x onerror=alert(2)>" in said.inner_text()
        for what in ("script", "img", "iframe", "style", "form", "[onclick]", "[onerror]", "[id]"):
            assert said.locator(what).count() == 0, (name, what)
        allowed = {
            "https://evil.example/pixel.png",
            "https://evil.example/",
        }  # by a click
        assert set(said.locator("a").evaluate_all("all => all.map((a) => a.href)")) <= allowed
        assert page.evaluate("document.documentElement.scrollWidth") == 390, name
        page.click("#new")
    assert not any("evil.example" in url for url in page.asked)
    assert page.said == []


def test_what_is_being_written_can_be_stopped(opened):
    page = opened
    page.route(CHAT, lambda route: None)  # never answered
    ask(page, QUESTION, "Searching ...")
    assert page.locator("#go").is_hidden()
    page.click("#stop")
    sync_api.expect(page.locator("#status")).to_have_text("Stopped.")
    assert page.input_value("#question") == QUESTION
    assert page.locator("#go").is_visible()
    assert kept(page) is None
    page.unroute(CHAT)
    page.keyboard.press("Enter")  # the field has the focus again
    sync_api.expect(page.locator(".answer")).to_have_text("37")


def test_the_history_is_in_the_browser_only_and_can_be_cleared(opened, key):
    page = opened
    ask(page, QUESTION)
    page.reload()
    use_key(page, key)
    page.click("#history summary")
    page.click("#conversations .link")
    assert page.inner_text(".answer") == "37"
    assert page.locator(".tree-box").is_hidden(), "the tree was not kept"
    ask(page, "Compute 12 + 30 - 6.")
    body = bodies(page, "/v1/chat/completions")[-1]
    assert [each["role"] for each in body["messages"]] == ["user", "assistant", "user"]
    assert len(json.loads(kept(page))[0]["turns"]) == 2
    page.click("#new")
    assert page.locator(".turn").count() == 0
    assert page.locator("#empty").is_visible()
    page.click("#clear")
    assert page.locator("#conversations li").count() == 0
    assert kept(page) is None


@pytest.mark.parametrize(
    "before",
    [
        "localStorage.setItem('tts.conversations', '[{\"turns\": 3}, null]')",
        "localStorage.setItem('tts.conversations', 'no JSON')",
        "localStorage.setItem('other', 'x'.repeat(5 * 1024 * 1024 - 5))",
        "Object.defineProperty(window, 'localStorage', { get() { throw new Error('no'); } })",
    ],
    ids=["damaged", "no-json", "full", "blocked"],
)
def test_a_storage_that_does_not_work_costs_the_history_alone(page, key, before):
    with page.add_init_script(before):
        page.reload()
        use_key(page, key)
        page.said.clear()
        ask(page, QUESTION)
        assert page.inner_text(".answer") == "37"
        assert page.said == []
        page.click("#history summary")
        if "setItem('other'" in before or "defineProperty" in before:
            assert "does not keep the history" in page.inner_text("#history-note")
        else:
            assert page.locator("#conversations li").count() == 1


def test_a_wrong_key_is_asked_for_again(page):
    page.fill("#key", "tts_wrong")
    page.click("#key-form button")
    sync_api.expect(page.locator("#failure")).to_have_text("The API key is not valid.")
    sync_api.expect(page.locator("#key-form")).to_be_visible()
