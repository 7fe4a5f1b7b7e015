"""The pages in a real browser: Debian's chromium, headless. ORACLE_REQUIRE_BROWSER=1 makes its absence a failure."""

import re
import threading
from contextlib import contextmanager

import pyarrow as pa
import pytest

import metric_oracle as mo
from metric_oracle.explorer.cases import read_cases
from metric_oracle.explorer.copied_cases import read_copies
from metric_oracle.explorer.exhibits import kinds_of
from metric_oracle.explorer.pages import Explorer
from metric_oracle.explorer.report import write_report
from metric_oracle.findings.results import Results, Scores
from metric_oracle.web import server
from metric_oracle.web.render import visible
from support import HANG
from support.browser import asked, browser, look, problems, said
from support.pages import NASTY

TOKEN = "t" * 43
# What each of these shows of a pair: segments of both texts, or rows.
SEGMENTS = ("bleu-2", "rouge-l", "temporal", "radgraph", "bertscore")
ROWS = ("radgraph", "bertscore", "chexbert:labels", "radcliq")
NOTHING = ("chexbert", "cider-d")


@pytest.fixture(scope="module")
def driver():
    with browser() as found:
        yield found


@contextmanager
def serving(cases):
    with server.listen(0) as at:
        port = at.getsockname()[1]
        running = server.silent(server.guarded(Explorer(cases).routes(), port=port, guests={TOKEN: "reader"}))
        thread = threading.Thread(target=running.run, kwargs={"sockets": [at]})
        thread.start()
        try:
            yield server.address(port, TOKEN)
        finally:
            running.should_exit = True
            thread.join(10)


@pytest.fixture(scope="module")
def site(nasty):
    with serving(nasty) as address:
        yield address


@pytest.fixture(scope="module")
def every(corpus, fake_encoder, tmp_path_factory):
    """Return cases with the answers of one search said to be those of every kind of metric."""
    folder = tmp_path_factory.mktemp("every")
    for side, name in (("train", "INDEX"), ("test", "TESTS")):
        mo.build_index(
            mo.reports(
                corpus[side],
                radgraph=corpus[f"{side}_graphs"],
                chexbert=corpus[f"{side}_embeddings"],
                chexbert_labels=corpus[f"{side}_labels"],
                uncertain="negative",
                encoder="fake",
            ),
            folder / name,
        )
    index, queries = mo.open_index(folder / "INDEX"), mo.reports(folder / "TESTS", encoder="fake").load()
    found = mo.retrieve(index, queries, "bleu-2")
    names = dict.fromkeys((*SEGMENTS, *ROWS, *NOTHING))
    files = [Results(found.table, {**found.signature, "metric": name}) for name in names]
    return read_cases(files, index, queries)


@pytest.fixture(scope="module")
def whole_site(every):
    with serving(every) as address:
        yield address


@contextmanager
def visiting(driver, address, title):
    """Open the first page by its token, and check at the end that nothing left this machine or broke the policy."""
    asked(driver), said(driver)
    driver.get(address)
    wait(driver, f"!location.search.includes('token') && document.title.startsWith('{title}')")
    yield address.split("/?")[0]
    urls = asked(driver)
    assert urls
    assert [url for url in urls if not url.startswith((address.split("/?")[0], "data:"))] == []
    assert said(driver) == []


@pytest.fixture
def home(driver, site):
    with visiting(driver, site, "Overview") as home:
        yield home


@pytest.fixture
def whole_home(driver, whole_site):
    with visiting(driver, whole_site, "Overview") as home:
        yield home


def press(driver, *keys):
    from selenium.webdriver.common.action_chains import ActionChains

    ActionChains(driver).send_keys(*keys).perform()


def wait(driver, condition):
    from selenium.webdriver.support.ui import WebDriverWait

    WebDriverWait(driver, HANG).until(lambda d: d.execute_script(f"return {condition}"))


def places(driver):
    """Return the positions, from 1, of the test reports of a list, by the addresses of their pages."""
    found = [e.get_attribute("href") for e in driver.find_elements("css selector", "tbody th.id a")]
    return [int(re.search(r"/case/(\d+)", address)[1]) + 1 for address in found]


def test_the_overview(driver, home, nasty):
    assert driver.execute_script("return document.cookie") == ""
    driver.get(f"{home}/cases")
    assert len(places(driver)) == 50
    driver.find_element("link text", "rouge-l oracle").click()
    wait(driver, "location.search.includes('sort=1')")
    shown = [nasty.columns[1].values[place - 1] for place in places(driver)]
    assert shown == sorted(shown, reverse=True)
    press(driver, "j")
    wait(driver, "location.search.includes('page=2')")
    assert not set(places(driver)) & {0}
    driver.find_element("tag name", "summary").click()
    driver.find_element("name", "ties").send_keys("1900")
    driver.find_element("xpath", "//button[.='Apply']").click()
    wait(driver, "location.search.includes('ties=1900')")
    assert all(nasty.frame["ties"][place - 1] > 1900 for place in places(driver))
    driver.get(f"{home}/cases")
    driver.find_element("tag name", "summary").click()
    driver.find_element("name", "text").send_keys("gnp.EXE")
    driver.find_element("xpath", "//button[.='Search words']").click()
    wait(driver, "location.search.includes('words=0')")
    assert "gnp" not in driver.current_url.lower()
    assert len(places(driver)) > 10


def test_pages_by_keyboard(driver, home):
    driver.get(f"{home}/case/0?show=0&files=1")
    assert driver.execute_script("return document.activeElement.tagName") == "H1"
    press(driver, "j")
    wait(driver, "location.pathname === '/case/1'")
    press(driver, "k")
    wait(driver, "location.pathname === '/case/0'")
    press(driver, "d")
    wait(driver, "document.querySelector('ins.only, del.only') !== null")
    press(driver, "2")
    wait(driver, "location.search.includes('show=1')")
    press(driver, "?")
    wait(driver, "document.getElementById('keys').open")
    assert problems(driver) == []
    driver.execute_script("document.getElementById('keys-off').click(); document.getElementById('keys').close()")
    press(driver, "j")
    driver.execute_script("document.getElementById('keys-off').click()")
    assert driver.execute_script("return location.pathname") == "/case/0"


def test_a_study_is_reached_by_its_id(driver, whole_home, every):
    wait(driver, "document.readyState === 'complete'")
    press(driver, "g")
    wait(driver, "document.activeElement.name === 'study'")
    press(driver, every.ids[5], "\ue007")  # Enter
    wait(driver, "location.pathname === '/case/5'")
    assert driver.find_element("tag name", "h1").text == f"Test report {every.ids[5]}"
    assert every.ids[5] not in driver.current_url + driver.title
    wait(driver, "document.readyState === 'complete'")
    press(driver, "g")
    wait(driver, "document.activeElement.name === 'study'")
    press(driver, "none", "\ue007")
    wait(driver, "document.querySelector('[role=status]') !== null")
    assert "No test report has the id “none”." in driver.find_element("css selector", "[role=status]").text
    assert problems(driver) == []
    said(driver)  # the answer is 404, which the console names


def test_the_list_fits(driver, every):
    """At 1,248 pixels, whatever the names of metrics and systems, and with two of the longest."""
    names = ("chexbert:labels", "radgraph:rg_er", "bleu-2", "rouge-l")
    table, signature = every.files[0].table, every.files[0].signature
    files = [Results(table, {**signature, "metric": name}) for name in names]
    columns = dict.fromkeys(names, table["score"])
    for system in ("a model of several words", "MedicalVisionLanguageModel-7B"):
        how = {name: {"direction": "higher"} for name in names}
        scored = pa.table({"query_id": table["query_id"], **columns})
        files.append(Scores(scored, {"kind": "scores", "system": system, "metrics": how}))
    look(driver, 1248)
    for cases in (every, read_cases(files)):
        with serving(cases) as address, visiting(driver, address, "Overview") as home:
            for query in ("", "?under=0", "?under=1", "?sort=1"):
                driver.get(f"{home}/cases{query}")
                size = "const e = document.querySelector('.wide'); return [e.scrollWidth, e.clientWidth]"
                widths = driver.execute_script(size)
                assert widths[0] == widths[1], query
    look(driver, 1280)


def test_the_partner_of_a_word_is_shown_on_focus(driver, home):
    driver.get(f"{home}/case/0?show=0")
    driver.execute_script("document.querySelector('.card .text[tabindex]').focus()")
    assert len(driver.find_elements("css selector", ".partner")) == 2
    first = driver.execute_script("return document.querySelector('.partner').dataset.p")
    press(driver, "\ue014")  # the right arrow
    found = {e.get_attribute("data-p") for e in driver.find_elements("css selector", ".partner")}
    assert len(found) == 1
    assert first is not None


def test_the_test_report_follows_the_pointer(driver, home, nasty):
    from selenium.webdriver.common.action_chains import ActionChains

    q = next(q for q in range(20) if len({c.text for c in nasty.candidates(q)} - {nasty.reference(q)}) > 2)
    driver.get(f"{home}/case/{q}")
    shown = "return [...document.querySelectorAll('[data-of]:not([hidden])')].map((e) => e.dataset.of).join()"
    assert driver.execute_script(shown) == "1"
    ActionChains(driver).move_to_element(driver.find_element("css selector", "#g2 .text")).perform()
    wait(driver, "document.querySelector('[data-of=\"2\"]').hidden === false")
    assert driver.execute_script(shown) == "2"
    driver.find_element("css selector", "#g3 h2 a").click()
    wait(driver, "location.search.includes('pick=3')")
    assert driver.execute_script(shown) == "3"
    assert problems(driver) == []


def test_the_evidence_of_each_metric(driver, whole_home, every):
    for show, name in enumerate(kinds_of(every)):
        driver.get(f"{whole_home}/case/1?show={show}")
        current = driver.find_element("css selector", "nav[aria-label=Evidence] [aria-current]").text
        assert current.startswith("plain words" if name == "diff" else name)
        pieces = driver.execute_script(
            "return [...document.querySelectorAll('[data-of]:not([hidden]) .text, .card .text')].map((e) => {"
            " const c = e.cloneNode(true); c.querySelectorAll('sup, .hidden').forEach((s) => s.remove());"
            " return c.textContent; })"
        )
        (candidate,) = {c.text for c in every.candidates(1)}
        if name in SEGMENTS or name == "diff":
            assert pieces == [visible(every.reference(1)), visible(candidate)], name
            marked = "ins.only, del.only" if name == "diff" else ".card .matched, .card .partly"
            assert name == "temporal" or driver.find_elements("css selector", marked), name
        if name in ROWS:
            assert driver.find_elements("css selector", ".card details tbody tr"), name
        if name in NOTHING:
            assert f"{name} has no evidence in words here." in driver.find_element("tag name", "main").text
        assert problems(driver) == [], name


def test_a_live_query_by_keyboard(driver, whole_home, every):
    driver.get(f"{whole_home}/live")
    while driver.switch_to.active_element.tag_name != "textarea":
        press(driver, "\ue004")  # Tab
    press(driver, every.index.reports["text"][7].as_py())
    while driver.switch_to.active_element.text != "Find its oracles":
        press(driver, "\ue004")
    press(driver, "\ue007")  # Enter
    wait(driver, "document.querySelector('h1').textContent === 'Oracles of your report'")
    headings = [e.text for e in driver.find_elements("css selector", "section h2")]
    assert headings == ["bleu-2", "rouge-l"]
    assert [e.text for e in driver.find_elements("css selector", "section td.best")] == ["1.0000\n(chosen by this)"] * 2
    assert driver.execute_script("return document.activeElement.tagName") == "H1"
    assert problems(driver) == []
    assert driver.current_url == f"{whole_home}/live"


@pytest.fixture(scope="module")
def copying_site(prepared):
    """Serve cases with a model whose reports are training reports, and with what it copies."""
    model = dict(zip(prepared.queries.ids, prepared.index.reports["text"].to_pylist(), strict=False))
    copies = mo.overlap(prepared.index, {"model": model}, prepared.queries, resamples=100)
    path = prepared.folder / "copies.parquet"
    Results(copies.pairs(text=True), copies.signature).write(path)
    with serving(read_cases(prepared.files, prepared.index, prepared.queries, copied=read_copies(path))) as address:
        yield address


@pytest.fixture
def copying_home(driver, copying_site):
    with visiting(driver, copying_site, "Overview") as home:
        yield home


def check_page(driver, what):
    """Check a page by axe-core, and that it does not scroll sideways; a part of it may."""
    assert problems(driver) == [], what
    widths = driver.execute_script("const e = document.documentElement; return [e.scrollWidth, e.clientWidth]")
    assert widths[0] <= widths[1], what


SIZES = pytest.mark.parametrize(("width", "dark"), [(1280, False), (320, True)])


@SIZES
def test_pages_can_be_read(driver, home, width, dark):
    look(driver, width, dark=dark)
    for path in ("/", "/cases", "/case/1?show=0", "/case/0?show=3", "/systems", "/cases?sort=1&ties=1000"):
        driver.get(home + path)
        check_page(driver, path)
    scheme = "dark" if dark else "light"
    assert driver.execute_script("return matchMedia(`(prefers-color-scheme: ${arguments[0]})`).matches", scheme)
    look(driver, 1280)


@SIZES
def test_pages_of_a_whole_study_can_be_read(driver, copying_home, width, dark):
    look(driver, width, dark=dark)
    for path in ("/systems", "/copies", "/case/0#copies"):
        driver.get("about:blank")  # or a change of the fragment alone would load nothing
        driver.get(copying_home + path)
        check_page(driver, path)
    driver.get(f"{copying_home}/live")
    driver.find_element("css selector", "textarea").send_keys("No acute process.")
    driver.find_element("css selector", "main form button").click()
    wait(driver, "document.querySelector('h1').textContent === 'Oracles of your report'")
    check_page(driver, "answers of a live query")
    look(driver, 1280)


def test_many_metrics_do_not_widen_a_page(driver, whole_home):
    look(driver, 320)
    for path in ("/", "/cases", "/case/1?show=0", "/systems"):
        driver.get(whole_home + path)
        heights = driver.execute_script("return [...document.querySelectorAll('.id bdi')].map((e) => e.offsetHeight)")
        assert all(height < 70 for height in heights)  # an id has two lines, not a letter a line
        assert driver.execute_script("return document.documentElement.scrollWidth") <= 320, path
    look(driver, 1280)


def test_figures_are_drawn(driver, every):
    chance = mo.expectation(every.index, every.queries, "rouge-l")
    with (
        serving(read_cases([*every.files[:2], chance], every.index, every.queries)) as address,
        visiting(driver, address, "Overview") as home,
    ):
        driver.get(f"{home}/systems")
        wait(driver, "[...document.images].length > 0 && [...document.images].every((i) => i.complete)")
        sizes = driver.execute_script("return [...document.images].map((i) => [i.naturalWidth, i.naturalHeight])")
        assert all(width > 100 and height > 50 for width, height in sizes)
        assert problems(driver) == []


def test_no_script_of_a_report_runs(driver, home, nasty):
    for q in range(len(NASTY)):
        driver.get(f"{home}/case/{q}")
        text = driver.execute_script(
            "const e = document.querySelector('[data-of] .text').cloneNode(true);"
            "e.querySelectorAll('sup, .hidden').forEach((s) => s.remove()); return e.textContent"
        )
        assert text == visible(nasty.reference(q)).replace("\r", "\n")
    assert driver.execute_script("return document.querySelectorAll('script').length") == 1


def open_report(driver, cases, folder):
    """Write the report of cases as one file, and open it."""
    out = folder / "page.html"
    write_report(cases, out)
    said(driver)
    driver.get(out.as_uri())


def test_the_report_in_one_file(driver, nasty, tmp_path):
    open_report(driver, nasty, tmp_path)
    shown = "[...document.querySelector('table.reports').tBodies[0].rows].filter(r => !r.hidden)"
    first = driver.execute_script(f"return {shown}.map(r => r.dataset.q)")
    driver.execute_script("document.querySelectorAll('.index th button')[1].click()")
    cells = driver.execute_script(f"return {shown}.map(r => r.cells[3].textContent)")
    scores = [float(cell) for cell in cells]
    assert len(scores) == 120
    assert scores == sorted(scores, reverse=True)
    order = driver.execute_script(f"return {shown}.map(r => r.dataset.q)")
    assert order != first
    cases = "[...document.querySelectorAll('details.folded')]"
    assert driver.execute_script(f"return {cases}.map(c => c.id.slice(7))") == order
    driver.execute_script("document.querySelector('[data-order=disagreement]').click()")
    assert driver.execute_script(f"return {shown}.map(r => r.dataset.q)") == first
    assert said(driver) == []


def test_the_report_is_filtered_and_opened(driver, every, tmp_path):
    open_report(driver, every, tmp_path)
    rows = "[...document.querySelectorAll('.index tbody tr')].filter(r => !r.hidden).map(r => Number(r.dataset.q))"
    assert len(driver.execute_script(f"return {rows}")) == len(every.ids)
    driver.find_element("css selector", "#filters summary").click()
    driver.find_element("name", "ties").send_keys("1")
    expected = every.frame.filter(every.frame["ties"] > 1)["q"].to_list()
    assert 0 < len(expected) < len(every.ids)
    assert sorted(driver.execute_script(f"return {rows}")) == expected
    words = f"{len(expected)} of {len(every.ids)} test reports."
    assert driver.find_element("id", "shown").text == words
    open_cases = "document.querySelectorAll('details.folded[open]').length"
    driver.find_element("css selector", "[data-open='1']").click()
    wait(driver, f"{open_cases} === {len(expected)}")
    wait(driver, "[...document.querySelectorAll('details.folded[open]')].every(c => c.querySelector('.evidence'))")
    driver.find_element("css selector", "#filters [type=reset]").click()
    wait(driver, f"document.getElementById('shown').textContent.startsWith('{len(every.ids)} of')")
    driver.find_element("css selector", "[data-open='']").click()
    wait(driver, f"{open_cases} === 0")
    driver.find_element("css selector", ".index tbody a").click()
    wait(driver, f"{open_cases} === 1")
    for width, dark in ((1280, False), (320, True)):
        look(driver, width, dark=dark)
        check_page(driver, width)
    look(driver, 1280)
    assert said(driver) == []


def test_a_report_with_figures_can_be_read(driver, every, tmp_path):
    few = [Results(file.table.slice(0, 3), file.signature) for file in every.files[:3]]
    chance = mo.expectation(every.index, every.queries, "rouge-l")
    write_report(read_cases([*few, chance], every.index, every.queries), tmp_path / "page.html")
    driver.get((tmp_path / "page.html").as_uri())
    assert driver.execute_script("return [...document.images].map((i) => i.complete && i.naturalWidth > 100)") == [True]
    assert problems(driver) == []
    assert said(driver) == []


def test_without_the_token_a_page_says_what_to_open(driver, site):
    driver.get(site.split("/?")[0])
    driver.delete_all_cookies()  # those of this host
    driver.get(site.split("/?")[0])
    assert "This page needs its token" in driver.find_element("tag name", "h1").text
    check_page(driver, "without a token")
    said(driver)


def test_other_addresses_can_be_read(driver, site):
    """The answer to a wrong address is a page too, which a reader can leave."""
    driver.get(site)
    wait(driver, "!location.search.includes('token')")
    driver.get(f"{site.split('/?')[0]}/cases?sort=99")
    assert re.match("Not possible", driver.title)
    check_page(driver, "another address")
    said(driver)
