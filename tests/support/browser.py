"""A real browser: Debian's chromium with its driver, headless. Nothing is fetched, nothing is reported."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

CHROMIUM, DRIVER = Path("/usr/bin/chromium"), Path("/usr/bin/chromedriver")


@contextmanager
def browser(*, width: int = 1280, height: int = 900, dark: bool = False) -> Iterator[Any]:
    """Yield a driver of Selenium; skip where there is no browser, or fail with ORACLE_REQUIRE_BROWSER=1."""
    if not (CHROMIUM.exists() and DRIVER.exists()):
        reason = "there is no chromium with chromium-driver"
        if os.environ.get("ORACLE_REQUIRE_BROWSER") == "1":
            pytest.fail(f"ORACLE_REQUIRE_BROWSER=1, but {reason}")
        pytest.skip(reason)
    os.environ |= {"SE_OFFLINE": "true", "SE_AVOID_STATS": "true"}
    from selenium import webdriver
    from selenium.webdriver.chrome.service import Service

    options = webdriver.ChromeOptions()
    options.binary_location = str(CHROMIUM)
    for argument in ("--headless=new", "--no-sandbox", "--disable-dev-shm-usage"):
        options.add_argument(argument)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    driver = webdriver.Chrome(options=options, service=Service(str(DRIVER)))
    try:
        size = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": False}
        driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [scheme]})
        yield driver
    finally:
        driver.quit()
