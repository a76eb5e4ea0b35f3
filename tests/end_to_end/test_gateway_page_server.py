"""The gateway's page in a real browser: a question, the tree, the answer, its report, keys."""

import shutil
import urllib.error
import urllib.request

import pytest
from tests.end_to_end.commands import Tts
from tests.end_to_end.gateways import gateway
from tests.reports.page.test_browser import CHROMIUM, QUIET

from tts.build import paths
from tts.gateway.safety import KeyLimits, KeyStore

sync_api = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
pytestmark = [
    pytest.mark.server,
    pytest.mark.skipif(
        not (paths.deployments_dir().parent / "checkpoints" / "demo-verifier").is_dir(),
        reason="the demo checkpoints are not here",
    ),
]

QUESTION = "Compute 12 + 30."


@pytest.fixture(scope="module")
def tts(new_served_home):
    """A home with a key of its own, whose server runs."""
    return Tts(new_served_home())


@pytest.fixture(scope="module")
def key(tts):
    """An API key; the gateway that starts after it wants one."""
    store = KeyStore(tts.home / "gateway" / "keys.db")
    try:
        return store.create("browser", KeyLimits())[0]
    finally:
        store.close()


@pytest.fixture(scope="module")
def address(tts, key):
    with gateway(tts) as address:
        yield address


@pytest.fixture
def page(address):
    if CHROMIUM is None:
        pytest.skip("there is no chromium here")
    sync_api.expect.set_options(timeout=60_000)  # a busy machine is no failure
    with sync_api.sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=QUIET)
        context = browser.new_context(viewport={"width": 390, "height": 844})
        context.set_default_timeout(60_000)
        page = context.new_page()
        page.said, page.asked = [], []
        page.on("console", lambda message: page.said.append(message.text))
        page.on("pageerror", lambda error: page.said.append(str(error)))
        page.on("request", lambda request: page.asked.append(request.url))
        page.goto(address)
        yield page
        browser.close()


def solve(page, question):
    page.fill("#question", question)
    page.fill("#n", "8")
    page.click("#go")


def test_a_problem_is_typed_in_solved_and_shared(page, address, key, tmp_path):
    expect = sync_api.expect
    expect(page.locator("#key-form")).to_be_visible()
    page.fill("#key", key)
    page.click("#key-form button")
    expect(page.locator("#key-form")).to_be_hidden()
    page.said.clear()  # of the refusal, which the browser notes
    solve(page, QUESTION)
    expect(page.locator("#answer")).to_have_text("42")
    expect(page.locator("#status")).to_contain_text("Solved in")
    thoughts = page.locator("#live .node:not(.root)").count()
    assert f"{thoughts} steps" in page.inner_text("#status")
    assert page.locator("#live .node.completed").count() == 8
    assert r"\boxed{42}" in page.locator("#live .steps .current pre").inner_text()
    assert page.evaluate("document.documentElement.scrollWidth") == 390
    assert page.evaluate("JSON.stringify([localStorage.length, document.cookie])") == '[0,""]'
    with page.expect_download() as started:
        page.click("#save")
    saved = tmp_path / "report.html"
    shutil.copyfile(started.value.path(), saved)
    assert {url.split("/")[2] for url in page.asked if not url.startswith("data:")} == {
        address.removeprefix("http://")
    }
    assert page.said == []
    # the report opens without key and network
    page.context.set_offline(True)
    page.goto(saved.as_uri())
    expect(page.locator(".node.completed")).to_have_count(8)
    assert key not in saved.read_text()


def test_a_wrong_key_is_asked_for_again(page):
    page.fill("#key", "tts_wrong")
    page.click("#key-form button")
    sync_api.expect(page.locator("#failure")).to_have_text("The API key is not valid.")
    sync_api.expect(page.locator("#key-form")).to_be_visible()


def test_a_report_may_not_speak_for_the_gateway_and_a_wrong_name_finds_none(address):
    with urllib.request.urlopen(address) as answer:
        policy = answer.headers["content-security-policy"]
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy
    for name in ("0" * 32 + ".html", "../keys.db", "%2e%2e/keys.db", ""):
        with pytest.raises(urllib.error.HTTPError) as refused:
            urllib.request.urlopen(f"{address}/reports/{name}")
        assert refused.value.code == 404
        refused.value.close()
