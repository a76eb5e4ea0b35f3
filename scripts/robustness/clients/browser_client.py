"""The gateway's page in Chromium: `python browser_client.py ADDRESS`."""

from __future__ import annotations

import importlib.metadata
import json
import shutil
import sys

from playwright.sync_api import expect, sync_playwright

ARGUMENTS = (
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)


def main() -> None:
    """Type a problem in, wait for the answer, open the report."""
    found = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "chrome"))), None)
    if found is None:
        sys.exit("There is no Chromium here.")
    said: list[str] = []
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=found, args=ARGUMENTS)
        page = browser.new_page()
        page.on("console", lambda message: said.append(message.text))
        page.on("pageerror", lambda error: said.append(str(error)))
        page.goto(sys.argv[1])
        page.fill("#question", "Compute 12 + 30.")
        page.click("#go")
        expect(page.locator("#status")).to_have_text("Answered.", timeout=60_000)
        seen = {
            "playwright": importlib.metadata.version("playwright"),
            "chromium": browser.version,
            "answer": page.inner_text(".answer"),
            "status": page.inner_text(".remarks"),
        }
        with page.expect_popup() as opened:
            page.click(".report")
        report = opened.value
        report.wait_for_selector("#trees .node.completed")
        seen["completions in the report"] = str(report.locator("#trees .node.completed").count())
        browser.close()
    assert not said, said
    print(json.dumps(seen))


if __name__ == "__main__":
    main()
