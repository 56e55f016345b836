"""A real headless Chromium for tests of pages. The fixture `browser` starts one for each test process,
when the first test asks for it.

A browser that is missing fails the tests: a page that no browser has opened is not tested.
"""

from __future__ import annotations

import json
import os
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from selenium.webdriver import Chrome, ChromeOptions
from selenium.webdriver.chrome.service import Service

FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--disable-dev-shm-usage",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--hide-scrollbars",
)
AXE = Path(__file__).parents[2] / ".cache" / "axe-core-4.11.0" / "axe.min.js"
"""Where scripts/browser puts axe-core (Deque, MPL-2.0), which checks pages for accessibility."""
PATIENCE = 120
"""Seconds that a page may take on a busy machine before its test gives up."""
SETTLED = "document.getAnimations().every(one => one.playState != 'running' || one.effect.getTiming().iterations > 9)"
"""No animation runs but those that repeat until something has loaded."""


class Browser:
    """A Chromium with what tests of pages ask: open a file, run a script in it, what it logged and requested."""

    def __init__(self, driver: Chrome) -> None:
        self.driver = driver

    def open(
        self, page: Path | str, hash: str = "", *, ready: str = "document.documentElement.dataset.ready !== undefined"
    ) -> None:
        """Load a file or an address and wait until it is `ready`. Earlier log entries and requests are dropped."""
        self.driver.get("about:blank")
        self.driver.get_log("browser")
        self.driver.get_log("performance")
        self.driver.get((page if isinstance(page, str) else page.resolve().as_uri()) + hash)
        self.wait(ready)

    def run(self, script: str, *arguments: Any) -> Any:
        """Return the value that the script returns. If it is a promise, wait for it."""
        return self.driver.execute_script(script, *arguments)

    def wait(self, condition: str) -> None:
        """Wait until the JavaScript expression is true."""
        ends = time.monotonic() + PATIENCE
        while not self.run(f"return Boolean({condition})"):
            if time.monotonic() > ends:
                raise AssertionError(f"the page never came to: {condition}; it logged {self.complaints()}")
            time.sleep(0.02)

    def texts(self, selector: str) -> list[str]:
        """Return the visible text of all elements of a selector."""
        texts: list[str] = self.run(
            "return [...document.querySelectorAll(arguments[0])].map(e => e.innerText)", selector
        )
        return texts

    def click(self, selector: str) -> None:
        """Click the first element of a selector, as a script does."""
        self.run("document.querySelector(arguments[0]).click()", selector)

    def press(self, *keys: str) -> None:
        """Press keys, as a user does, where the focus is."""
        from selenium.webdriver import ActionChains

        ActionChains(self.driver).send_keys(*keys).perform()

    def complaints(self) -> list[str]:
        """What was logged to the console since the page was opened."""
        return [entry["message"] for entry in self.driver.get_log("browser")]

    def requests(self) -> list[str]:
        """Addresses requested since the page was opened, without its own file and what its security policy blocked."""
        events = [json.loads(entry["message"])["message"] for entry in self.driver.get_log("performance")]
        failed = [event["params"] for event in events if event["method"] == "Network.loadingFailed"]
        blocked_ids = {event["requestId"] for event in failed if event.get("blockedReason") == "csp"}
        requests = [event["params"] for event in events if event["method"] == "Network.requestWillBeSent"]
        page_url = self.driver.current_url.split("#")[0]
        urls = [event["request"]["url"] for event in requests if event["requestId"] not in blocked_ids]
        return [url for url in urls if url.split("#")[0] != page_url]

    def violations(self) -> list[str]:
        """What axe-core finds wrong with the page as it is, a line for each; skips the test without axe-core."""
        path = Path(os.environ.get("CTX1_AXE", AXE))
        if not path.exists():
            pytest.skip(f"no axe-core at {path}: run scripts/browser where there is npm")
        self.wait(SETTLED)  # while a name lights up, its colors are on their way
        self.run(path.read_text(encoding="utf-8"))
        results = self.run("return axe.run(document, {resultTypes: ['violations']})")["violations"]
        return [f"{rule['id']}: {node['html'][:200]}" for rule in results for node in rule["nodes"]]

    def layout_shift(self) -> float:
        """Return the sum of all layout shifts since the page was opened that no input of the user caused."""
        shift: float = self.run(
            """return new Promise(resolve => {
                new PerformanceObserver(list => resolve(list.getEntries()
                    .filter(entry => !entry.hadRecentInput).reduce((sum, entry) => sum + entry.value, 0)))
                    .observe({type: 'layout-shift', buffered: true});
                setTimeout(() => resolve(0), 300);
            })"""
        )
        return shift

    @contextmanager
    def looking(
        self, *, width: int = 1400, height: int = 1000, dark: bool = False, still: bool = False
    ) -> Iterator[None]:
        """Show a window of this size, with these preferences of the reader, within the block."""
        features = [
            {"name": "prefers-color-scheme", "value": "dark" if dark else "light"},
            {"name": "prefers-reduced-motion", "value": "reduce" if still else "no-preference"},
        ]
        size = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": False}
        self.driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
        self.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": features})
        try:
            yield
        finally:
            self.driver.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})
            self.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": []})


@contextmanager
def started(profile: Path) -> Iterator[Browser]:
    """Yield a browser with an empty profile in that folder. If there is no browser, fail the test."""
    options = ChromeOptions()
    options.binary_location = _executable("CTX1_BROWSER", "chromium", "chromium-browser", "google-chrome")
    for flag in (*FLAGS, f"--user-data-dir={profile}", "--window-size=1400,1000"):
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    driver = Chrome(options=options, service=Service(_executable("CTX1_CHROMEDRIVER", "chromedriver")))
    try:
        driver.set_script_timeout(PATIENCE)
        yield Browser(driver)
    finally:
        driver.quit()


def _executable(variable: str, *names: str) -> str:
    path = os.environ.get(variable) or next(filter(None, map(shutil.which, names)), None)
    return path or pytest.fail(f"no {' or '.join(names)} found: run scripts/browser, or name one with {variable}")
