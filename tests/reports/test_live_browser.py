"""`tts runs watch` in a real browser: a newer page takes the place of the one that is read."""

from tests.reports.page.test_browser import browser  # noqa: F401 - a fixture
from tests.reports.test_live_server_page import grow, pages, run  # noqa: F401 - fixtures

from tts.reports.live_server import EVERY_S, LivePage, serving


def report(page, number):
    """The frame that shows a page of the run, once it is the one that is shown."""
    shown = page.wait_for_selector(f'iframe:not(.coming)[src="/{number}/report.html"]')
    frame = shown.content_frame()
    frame.wait_for_selector(".node.completed")
    return frame


def found(frame, begins):
    """Wait until the list of problems says so."""
    frame.wait_for_function(
        "begins => document.getElementById('found').textContent.startsWith(begins)", arg=begins
    )


def test_the_reader_stays_where_they_are_when_a_newer_page_comes(browser, run, pages):  # noqa: F811
    folder, lines = run
    grow(folder, lines, 11)  # two problems are solved
    now = [0.0]
    live = LivePage(folder, pages, lambda: now[0])
    live.look()
    said = []
    with serving(live) as address:
        page = browser.new_page(viewport={"width": 1000, "height": 600})
        page.on("pageerror", lambda error: said.append(str(error)))
        page.goto(address)
        frame = report(page, 1)
        frame.select_option("#outcome", "right")
        found(frame, "1 of")
        frame.evaluate("document.querySelector('section > details').open = true")
        frame.wait_for_function("() => !document.querySelector('.chart:not(:has(svg))')")
        frame.evaluate(
            "const { top } = document.getElementById('trees').getBoundingClientRect();"
            "scrollTo({ top: scrollY + top + 50, behavior: 'instant' })"
        )
        chosen = "document.querySelector('#problems [aria-selected=true] .text').textContent"
        top = "Math.round(document.getElementById('trees').getBoundingClientRect().top)"
        before = frame.evaluate(f"[{chosen}, {top}]")
        assert before[1] == -50
        grow(folder, lines, len(lines))
        now[0] += EVERY_S
        live.look()
        frame = report(page, 2)
        found(frame, "2 of")
        frame.wait_for_function(f"() => {top} === -50")
        assert frame.evaluate(f"[{chosen}, {top}]") == before
        assert frame.input_value("#outcome") == "right"
        assert frame.evaluate("document.querySelector('section > details').open")
        assert page.locator("iframe").count() == 1
        page.wait_for_function("() => document.title.includes('3/3')")
        page.close()
    assert said == []
