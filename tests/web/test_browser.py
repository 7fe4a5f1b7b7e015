"""The pages in a real browser: Debian's chromium, headless. ORACLE_REQUIRE_BROWSER=1 makes its absence a failure."""

import json
import os
import shutil
import threading

import pytest

from metric_oracle.web import server
from metric_oracle.web.explorer import Explorer
from metric_oracle.web.report import write_report

CHROMIUM, DRIVER = (shutil.which(name) for name in ("chromium", "chromedriver"))
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
TOKEN = "t" * 43
# What a reader of the screen meets: every control and link has a name, every page one h1, headings go down by one.
PROBLEMS = """
const named = (e) => (e.getAttribute("aria-label") || e.textContent || e.alt || "").trim()
  || [...(e.labels || [])].some((l) => l.textContent.trim());
const shown = (e) => e.type !== "hidden";
const found = [...document.querySelectorAll("a, button, input, select, textarea, img, svg[role]")]
  .filter((e) => shown(e) && !named(e)).map((e) => e.outerHTML.slice(0, 80));
const levels = [...document.querySelectorAll("main h1, main h2, main h3, main h4")].map((h) => Number(h.tagName[1]));
if (levels.filter((l) => l === 1).length !== 1) found.push("h1: " + levels);
for (const table of document.querySelectorAll("main table")) {
  for (const th of table.querySelectorAll("th")) if (!th.scope) found.push("scope: " + th.outerHTML.slice(0, 80));
}
const ids = [...document.querySelectorAll("[id]")].map((e) => e.id);
if (new Set(ids).size !== ids.length) found.push("ids");
// Contrast of text by WCAG 2.2, 4.5 to 1, against the nearest background.
const rgb = (c) => (c.match(/[\\d.]+/g) || []).map(Number);
const light = ([r, g, b]) => {
  const f = [r, g, b].map((v) => (v /= 255) <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4);
  return 0.2126 * f[0] + 0.7152 * f[1] + 0.0722 * f[2];
};
const back = (e) => {
  for (; e; e = e.parentElement) {
    const c = rgb(getComputedStyle(e).backgroundColor);
    if (c.length === 3 || c[3] > 0) return c;
  }
  return [255, 255, 255];
};
for (const e of document.querySelectorAll("main *")) {
  const own = [...e.childNodes].some((n) => n.nodeType === 3 && n.textContent.trim());
  if (!own || e.closest("option, .hidden, svg")) continue;
  const pair = [light(rgb(getComputedStyle(e).color)), light(back(e))].sort((a, b) => b - a);
  if ((pair[0] + 0.05) / (pair[1] + 0.05) < 4.5) found.push("contrast: " + e.outerHTML.slice(0, 80));
}
return found;
"""


def lacking(reason):
    if os.environ.get("ORACLE_REQUIRE_BROWSER") == "1":
        pytest.fail(f"ORACLE_REQUIRE_BROWSER=1, but {reason}")
    pytest.skip(reason)


@pytest.fixture(scope="module")
def browser():
    if not CHROMIUM or not DRIVER:
        lacking("there is no chromium with its chromedriver")
    try:
        from selenium import webdriver
        from selenium.webdriver.chrome.service import Service
    except ImportError:
        lacking("there is no selenium")
    os.environ |= {"SE_OFFLINE": "true", "SE_AVOID_STATS": "true"}
    options = webdriver.ChromeOptions()
    options.binary_location = CHROMIUM
    for flag in FLAGS:
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"performance": "ALL", "browser": "ALL"})
    driver = webdriver.Chrome(options=options, service=Service(DRIVER))
    yield driver
    driver.quit()


@pytest.fixture(scope="module")
def site(nasty):
    with server.listen(0, "explore") as at:
        port = at.getsockname()[1]
        running = server.silent(server.guarded(Explorer(nasty).routes(), port=port, guests={TOKEN: "reader"}))
        thread = threading.Thread(target=running.run, kwargs={"sockets": [at]})
        thread.start()
        yield server.address(port, TOKEN)
        running.should_exit = True
        thread.join(10)


@pytest.fixture
def opened(browser, site):
    """Open the first page by its token, and check at the end that nothing left this machine or broke the policy."""
    from selenium.webdriver.support.ui import WebDriverWait

    browser.get_log("browser")
    browser.get_log("performance")
    browser.get(site)
    WebDriverWait(browser, 20).until(lambda b: "token" not in b.current_url and b.title.startswith("Test reports"))
    yield browser
    events = [json.loads(entry["message"])["message"] for entry in browser.get_log("performance")]
    asked = [e["params"]["request"]["url"] for e in events if e["method"] == "Network.requestWillBeSent"]
    home = site.split("/?")[0]
    assert asked
    assert [url for url in asked if not url.startswith((home, "data:"))] == []
    assert [entry["message"] for entry in browser.get_log("browser")] == []


def press(browser, key):
    from selenium.webdriver.common.action_chains import ActionChains

    ActionChains(browser).send_keys(key).perform()


def wait(browser, condition):
    from selenium.webdriver.support.ui import WebDriverWait

    WebDriverWait(browser, 20).until(lambda b: b.execute_script(f"return {condition}"))


def test_pages_by_keyboard(opened, site):
    home = site.split("/?")[0]
    assert opened.execute_script("return document.cookie") == ""
    opened.get(f"{home}/case/0?show=0")
    assert opened.execute_script("return document.activeElement.tagName") == "H1"
    press(opened, "j")
    wait(opened, "location.pathname === '/case/1'")
    press(opened, "k")
    wait(opened, "location.pathname === '/case/0'")
    press(opened, "d")
    wait(opened, "document.querySelector('ins.only, del.only') !== null")
    press(opened, "2")
    wait(opened, "location.search.includes('show=1')")
    press(opened, "?")
    wait(opened, "document.getElementById('keys').open")
    opened.execute_script("document.getElementById('keys-off').click(); document.getElementById('keys').close()")
    press(opened, "j")
    opened.execute_script("document.getElementById('keys-off').click()")
    assert opened.execute_script("return location.pathname") == "/case/0"


def test_the_partner_of_a_word_is_shown_on_focus(opened, site):
    opened.get(f"{site.split('/?')[0]}/case/0?show=0")
    opened.execute_script("document.querySelector('.evidence .text[tabindex]').focus()")
    assert len(opened.find_elements("css selector", ".partner")) == 2
    first = opened.execute_script("return document.querySelector('.partner').dataset.p")
    press(opened, "\ue014")  # the right arrow
    found = {e.get_attribute("data-p") for e in opened.find_elements("css selector", ".partner")}
    assert len(found) == 1
    assert first is not None


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_pages_can_be_read(opened, site, scheme):
    home = site.split("/?")[0]
    media = {"features": [{"name": "prefers-color-scheme", "value": scheme}]}
    opened.execute_cdp_cmd("Emulation.setEmulatedMedia", media)
    for width in (1280, 320):
        size = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": False}
        opened.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
        for path in ("/", "/case/1?show=0", "/case/0?show=3", "/systems"):
            opened.get(home + path)
            assert opened.execute_script(PROBLEMS) == [], (path, width)
            assert opened.execute_script("return document.documentElement.scrollWidth") <= width, (path, width)
            assert opened.execute_script("return matchMedia(`(prefers-color-scheme: ${arguments[0]})`).matches", scheme)
    opened.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})


def test_no_script_of_a_report_runs(opened, site, nasty, tmp_path):
    from metric_oracle.web.render import visible

    home = site.split("/?")[0]
    for q in range(7):
        opened.get(f"{home}/case/{q}")
        text = opened.execute_script("return document.querySelector('#reference + .text').textContent")
        assert text == visible(nasty.reference(q)).replace("\r", "\n")
    assert opened.execute_script("return document.querySelectorAll('script').length") == 1


def test_the_report_in_one_file(browser, nasty, tmp_path):
    out = tmp_path / "page.html"
    write_report(nasty, out)
    browser.get_log("browser")
    browser.get(out.as_uri())
    browser.execute_script("document.querySelectorAll('th[data-column] button')[1].click()")
    cells = browser.execute_script(
        "return [...document.querySelector('table').tBodies[0].rows].map(r => r.cells[2].textContent)"
    )
    scores = [float(cell) for cell in cells]
    assert len(scores) == 120
    assert scores == sorted(scores, reverse=True)
    assert browser.get_log("browser") == []
