"""A real browser: Debian's chromium with its driver, headless. Nothing is fetched, nothing is reported."""

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from support import HANG

CHROMIUM, DRIVER = Path("/usr/bin/chromium"), Path("/usr/bin/chromedriver")
FLAGS = (
    "--headless=new",
    "--no-sandbox",
    "--disable-dev-shm-usage",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)
# WCAG 2.0 to 2.2, levels A and AA, and what axe-core advises beyond.
RULES = ("wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice")
_RUN = """
const [rules, done] = arguments;
axe.run(document, { runOnly: { type: "tag", values: rules } }).then(
  (found) => done({
    passed: found.passes.length,
    failed: found.violations.flatMap((one) => one.nodes.map((node) => `${one.id}: ${node.html.slice(0, 120)}`)),
  }),
  (error) => done({ passed: 0, failed: [String(error)] }),
);
"""


def lacking(reason: str) -> None:
    """Skip for a reason, or fail with ORACLE_REQUIRE_BROWSER=1."""
    if os.environ.get("ORACLE_REQUIRE_BROWSER") == "1":
        pytest.fail(f"ORACLE_REQUIRE_BROWSER=1, but {reason}")
    pytest.skip(reason)


@contextmanager
def browser(*, width: int = 1280, height: int = 900, dark: bool = False) -> Iterator[Any]:
    """Yield a driver of Selenium; skip where there is no browser, or fail with ORACLE_REQUIRE_BROWSER=1."""
    if not (CHROMIUM.exists() and DRIVER.exists() and find_spec("selenium")):
        lacking("there is no chromium with chromium-driver and selenium")
    os.environ |= {"SE_OFFLINE": "true", "SE_AVOID_STATS": "true"}
    from selenium import webdriver
    from selenium.webdriver.chrome.service import Service

    options = webdriver.ChromeOptions()
    options.binary_location = str(CHROMIUM)
    for argument in FLAGS:
        options.add_argument(argument)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    driver = webdriver.Chrome(options=options, service=Service(str(DRIVER)))
    driver.set_script_timeout(HANG)
    try:
        look(driver, width, height, dark=dark)
        yield driver
    finally:
        driver.quit()


def look(driver: Any, width: int, height: int = 900, *, dark: bool = False) -> None:
    """Give the window a size and a colour scheme."""
    size = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": False}
    driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
    scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
    driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [scheme]})


def asked(driver: Any) -> list[str]:
    """Return the addresses that were asked for since the last call."""
    events = [json.loads(entry["message"])["message"] for entry in driver.get_log("performance")]
    return [e["params"]["request"]["url"] for e in events if e["method"] == "Network.requestWillBeSent"]


def said(driver: Any) -> list[str]:
    """Return the lines of the console since the last call: errors of scripts, reports of the policy."""
    return [entry["message"] for entry in driver.get_log("browser")]


@cache
def _axe() -> str:
    found = find_spec("axe_playwright_python")
    if found is None or not found.submodule_search_locations:
        lacking("there is no axe-core: pip install --no-deps axe-playwright-python, which holds it")
    return (Path(found.submodule_search_locations[0]) / "axe.min.js").read_text("utf-8")  # type: ignore[union-attr,index]


def problems(driver: Any) -> list[str]:
    """Return what axe-core finds wrong with the page: rule and element."""
    driver.execute_script(_axe())
    found = driver.execute_async_script(_RUN, list(RULES))
    assert found["passed"] > 10 or found["failed"]
    return found["failed"]
