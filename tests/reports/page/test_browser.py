"""The page in a real browser: from disk, without network, by keyboard."""

import json
import shutil
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from tests.reports.page.runs import HOSTILE, write_run

from tts.reports.figures.charts import Figure
from tts.reports.page.page import Report

sync_api = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "chrome"))), None)
QUIET = (
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)
ROWS = [
    {"level": "1", "right": 0.5},
    {"level": 'a "quoted", one', "right": None},
    {"level": "=1+1", "right": -1},
]
CHART = {
    "mark": {"type": "bar", "tooltip": {"content": "data"}},
    "width": "container",
    "data": {"name": "rows"},
    "transform": [{"filter": "datum.level != ''"}],
    "encoding": {"x": {"field": "level"}, "y": {"field": "right", "type": "quantitative"}},
}


@dataclass
class Opened:
    """A page, and what it has said and asked for."""

    page: object
    said: list[str] = field(default_factory=list)
    asked: list[str] = field(default_factory=list)

    def open(self, file: Path) -> None:
        page = self.page
        page.on("console", lambda message: self.said.append(message.text))
        page.on("pageerror", lambda error: self.said.append(str(error)))
        page.on("dialog", lambda dialog: self.said.append(dialog.message) or dialog.dismiss())
        page.on("request", lambda request: self.asked.append(request.url))
        page.goto(file.as_uri())
        page.wait_for_selector(".chart svg")
        page.wait_for_selector(".node.completed")

    def listed(self, status: str) -> list[str]:
        """The questions in the list, once its status line says so."""
        sync_api.expect(self.page.locator("#found")).to_have_text(status)
        return self.page.locator("#problems .said").all_inner_texts()

    def current(self) -> str:
        """The text of the thought that is walked to."""
        return self.page.locator(".steps .current .text").inner_text()


@pytest.fixture(scope="module")
def browser():
    if CHROMIUM is None:
        pytest.skip("there is no chromium here")
    sync_api.expect.set_options(timeout=60_000)  # a busy machine is no failure
    with sync_api.sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=QUIET)
        yield browser
        browser.close()


@pytest.fixture
def opened(browser):
    context = browser.new_context(offline=True, accept_downloads=True)
    context.set_default_timeout(60_000)
    yield Opened(context.new_page())
    context.close()


def test_a_page_opens_from_disk_is_walked_and_searched_and_asks_for_no_network(opened, tmp_path):
    run = write_run(tmp_path / "a run", problems=3, step=HOSTILE)
    figure = Figure("by-level", "By level", HOSTILE, ROWS, CHART)
    file = Report(run / "report.html", "T", [figure], [run], {"F": {"a": HOSTILE}}).write()
    opened.open(file)
    page = opened.page
    assert opened.listed("3 of 3 problems") == ["What is p0?", "What is p1?", "What is p2?"]
    assert page.locator("img").count() == 0

    page.keyboard.press("n")
    sync_api.expect(page.locator(".pane h3")).to_have_text("p1")
    assert opened.current() == "the end"
    page.locator(".tree").scroll_into_view_if_needed()
    page.keyboard.press("ArrowLeft")  # the drawing that is in view, without the focus
    assert "</script><img src=x onerror=alert(1)><b>& ' \" <!--" in opened.current()
    page.keyboard.press("ArrowDown")
    assert opened.current() == "a poor step"
    page.keyboard.press("Home")
    page.keyboard.press("ArrowRight")
    page.keyboard.press("ArrowRight")
    page.keyboard.press("ArrowDown")
    assert opened.current() == "another end"
    assert "reused" in page.locator(".steps .current .facts").inner_text()
    page.keyboard.press("End")
    assert opened.current() == "the end"

    def visible():
        return page.locator(".tree .node:not(.later)").count()

    assert visible() == 5  # the root, too
    slider = page.locator("input[type=range]")
    slider.fill("1")  # the first thought is written
    assert visible() == 2
    assert page.locator(".node.open").count() >= 1
    slider.focus()
    page.keyboard.press("End")
    assert visible() == 5
    page.locator(".kept-only").check()
    assert visible() == 4  # without the pruned one

    page.select_option("#outcome", "wrong")
    assert opened.listed("1 of 3 problems") == ["What is p0?"]
    page.select_option("#outcome", "")
    opened.listed("3 of 3 problems")
    page.locator("h1").click()
    page.keyboard.press("/")
    page.keyboard.type("P2?")
    assert opened.listed("1 of 3 problems") == ["What is p2?"]
    page.locator("#search").fill("another END")
    assert len(opened.listed("3 of 3 problems")) == 3
    page.wait_for_selector(".tree .hit")
    page.locator("#search").fill("nowhere")
    assert opened.listed("0 of 3 problems") == []

    with page.expect_download() as download:
        page.click("[data-format=csv]")
    assert download.value.suggested_filename == "by-level.csv"
    saved = Path(download.value.path()).read_bytes()
    assert saved == b'level,right\r\n1,0.5\r\n"a ""quoted"", one",\r\n\'=1+1,-1\r\n'
    with page.expect_download() as download:
        page.click("[data-format=json]")
    assert json.loads(Path(download.value.path()).read_text()) == ROWS
    with page.expect_download() as download:
        page.click("[data-format=svg]")
    assert Path(download.value.path()).read_text().startswith("<svg")

    assert opened.said == []
    loaded = [url for url in opened.asked if not url.startswith("blob:")]
    assert loaded == [file.as_uri()]


def test_two_runs_stand_side_by_side_on_a_phone(opened, tmp_path):
    step = "## Step\n\n$x^2$ is **4**\n\n"
    runs = [write_run(tmp_path / name, problems=2, step=step) for name in ("one", "two")]
    figure = Figure("some", "Some", "Read.", ROWS, CHART)
    apart = Figure(
        "disagreements-1", "D", "Read.", [{"problem": "p1", "answer in two": "2^2"}] * 60
    )
    file = Report(tmp_path / "p.html", "T", [figure, apart], runs).write()
    opened.page.set_viewport_size({"width": 390, "height": 800})
    opened.open(file)
    page = opened.page
    assert page.locator(".pane h3").all_inner_texts() == ["one: p0", "two: p0"]
    assert page.evaluate("document.documentElement.scrollWidth") == 390
    shown = page.locator(".pane").first.locator(".steps .text").first
    assert shown.locator("h4, strong, .katex").count() == 3
    table = page.locator("#disagreements-1")
    assert table.locator("a").count() == 50
    table.locator("button", has_text="Show 10 more").click()
    assert table.locator("a").count() == table.locator(".katex").count() == 60
    table.locator("a").last.click()
    sync_api.expect(page.locator(".pane h3")).to_have_text(["one: p1", "two: p1"])
    page.select_option("#outcome", "differ")
    assert opened.listed("0 of 2 problems") == []
    page.select_option("#other-run", "")
    page.select_option("#outcome", "right")
    opened.listed("1 of 2 problems")
    sync_api.expect(page.locator(".pane")).to_have_count(1)
    assert opened.said == []


def test_a_tree_opens_fitted_and_takes_another_size_by_buttons_keys_and_wheel(opened, tmp_path):
    run = write_run(tmp_path / "run", problems=2)
    figure = Figure("some", "Some", "Read.", ROWS, CHART)
    file = Report(tmp_path / "p.html", "T", [figure], [run]).write()
    opened.page.set_viewport_size({"width": 300, "height": 700})
    opened.open(file)
    page = opened.page

    def width():
        return float(page.locator(".tree svg").get_attribute("width"))

    def overflow():
        return page.locator(".tree").evaluate("box => box.scrollWidth - box.clientWidth")

    fitted = width()
    assert overflow() <= 0
    page.click("[data-zoom=in]")
    assert width() == pytest.approx(1.25 * fitted)
    assert overflow() > 0
    page.click("[data-zoom=fit]")
    assert width() == pytest.approx(fitted)
    page.locator(".tree svg").focus()
    page.keyboard.press("+")
    page.keyboard.press("-")
    assert width() == pytest.approx(fitted)
    page.locator(".tree").hover()
    page.keyboard.down("Control")
    page.mouse.wheel(0, -100)
    page.keyboard.up("Control")
    page.wait_for_function(
        "least => document.querySelector('.tree svg').getAttribute('width') > least", arg=fitted
    )
    page.locator(".tree svg").focus()
    page.keyboard.press("0")
    assert width() == pytest.approx(fitted)
    page.set_viewport_size({"width": 900, "height": 700})
    page.wait_for_function(
        "least => document.querySelector('.tree svg').getAttribute('width') > least", arg=fitted
    )
    assert overflow() <= 0
    assert opened.said == []
