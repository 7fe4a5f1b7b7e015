"""A small survey with hostile texts, the command that serves it, and what a browser shows of it."""

import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from metric_oracle.survey.create import SurveyOptions, create_survey
from metric_oracle.survey.folder import Survey
from support import HANG
from support.browser import said

NASTY = "<script>alert(\"1\")</script> & \u2028 \u202e \0 'quoted' {{ 7*7 }}"
N = 3


def made(folder: Path, **options: Any) -> Survey:
    """Create a survey of three studies with two candidates each, for two raters."""
    ids = [f"zz-study-{i}" for i in range(N)]
    others = {
        f"zz-origin-{kind}": {name: f"{word} {i}. {NASTY}" for i, name in enumerate(ids)}
        for kind, word in (("a", "Alpha"), ("b", "Beta"))
    }
    own = {name: f"Reference {i}. {NASTY}" for i, name in enumerate(ids)}
    return create_survey(own, others, folder, raters=["anna", "ben"], options=SurveyOptions(studies=N, **options))


@contextmanager
def served(folder: Path) -> Iterator[tuple[subprocess.Popen, dict[str, str]]]:
    """Serve a survey by the command, and yield the process and the addresses; it is killed at the end."""
    command = [sys.executable, "-m", "metric_oracle", "survey", "serve", str(folder)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as server:
        try:
            assert server.stdout is not None
            lines = [server.stdout.readline() for _ in range(3)]
            yield server, dict(line.strip().split(": ", 1) for line in lines[:2])
        finally:
            server.send_signal(signal.SIGKILL)


def status(driver: Any) -> str:
    """Return the status line of a study's page."""
    return driver.find_element("css selector", ".saved").text


def wait(driver: Any, condition: Any, what: str, seconds: float = HANG) -> None:
    """Wait until a condition holds of the page, or fail with its status line and all that may say why."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if condition(driver):
            return
        time.sleep(0.05)
    state = driver.execute_script("return [location.href, document.readyState, Object.keys(localStorage)]")
    pytest.fail(f"{what}: {status(driver)}; scripted: {scripted(driver)}; {state}; {said(driver)}")


def scripted(driver: Any) -> bool:
    """Tell whether the script of a study's page has begun to work."""
    return driver.execute_script("return document.querySelector('.script')?.hidden === false")


def saved(driver: Any) -> bool:
    """Tell whether the page says that all is saved."""
    return status(driver).startswith("Saved")


def headed(driver: Any, text: str) -> bool:
    """Tell whether the page has a heading."""
    return driver.execute_script("return document.querySelector('h1')?.textContent ?? ''") == text


def cells(driver: Any) -> list[str]:
    """Return what stands in the cells of a study's page."""
    return driver.execute_script("return [...document.querySelectorAll('td input')].map((one) => one.value)")
