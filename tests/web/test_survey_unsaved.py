"""What is typed in a survey is kept, in a real browser: without a server, beside another tab, out of range."""

import random
import signal
import time

import pytest

from support.browser import browser, problems
from support.survey import cells, headed, made, saved, scripted, served, status, wait

TWELVE = [str(count) for count in (3, 1, 4, 15, 9, 2, 6, 5, 35, 8, 97, 0)]
COUNTS = [[int(cell) for cell in TWELVE[at : at + 2]] for at in range(0, 12, 2)]


@pytest.fixture(scope="module")
def driver():
    with browser() as found:
        yield found


@pytest.fixture
def survey(tmp_path):
    return made(tmp_path / "S")


def study_of(links, number=1):
    return f"{links['anna'].split('?')[0]}study/{number}"


def enter(driver, links, number=1):
    """Open a study as anna; from here on, its script keeps what is typed."""
    driver.get(links["anna"])
    wait(driver, lambda d: headed(d, "Survey of anna"), "the overview")
    driver.get(study_of(links, number))
    wait(driver, scripted, "the script")


def write(driver, texts, candidate=0, begin=0):
    """Type into the cells of a candidate, as fast as the driver does."""
    for at, text in enumerate(texts, begin):
        cell = driver.find_element("name", f"c{candidate}-{at // 2}-{at % 2}")
        cell.clear()
        cell.send_keys(text)


def counts_of(survey, study=0, candidate=0):
    event = survey.log("anna").read().latest.get((study, candidate))
    return event and event.counts


def buttons(driver):
    return driver.find_elements("css selector", ".conflict button")


@pytest.mark.parametrize("end", [signal.SIGKILL, signal.SIGSTOP], ids=["gone", "silent"])
def test_counts_typed_without_a_server_are_saved_later(driver, survey, end):
    """A save is without an answer while twelve counts are typed and the tab is left."""
    with served(survey.folder) as (server, links):
        enter(driver, links)
        server.send_signal(end)
        write(driver, TWELVE[:1])
        time.sleep(0.5)  # the first count alone is on its way
        write(driver, TWELVE[1:], begin=1)
        driver.get("about:blank")
    with served(survey.folder) as (_, links):
        driver.get(study_of(links))
        wait(driver, lambda d: saved(d) and cells(d)[:12] == TWELVE, "the twelve counts")
        assert counts_of(survey) == COUNTS
        driver.refresh()
        assert cells(driver) == [*TWELVE, *[""] * 12]
        kept = driver.execute_script("return Object.keys(localStorage).filter((key) => key.startsWith('survey:'))")
        assert kept == []


def test_a_correction_without_a_server_is_named_by_the_overview(driver, survey):
    """The study is complete without it, so that nothing else would lead the rater back to it."""
    with served(survey.folder) as (_, links):
        enter(driver, links)
        write(driver, TWELVE)
        wait(driver, saved, "the first counts")
    write(driver, ["7"])
    wait(driver, lambda d: status(d).startswith("Not saved, retrying"), "no server")
    driver.get("about:blank")
    with served(survey.folder) as (_, links):
        driver.get(links["anna"].split("?")[0])
        wait(driver, lambda d: headed(d, "Survey of anna"), "the overview")
        items = driver.find_elements("css selector", "ol.studies li")
        assert ["not saved yet" in item.text for item in items] == [True, False, False]
        assert "wait in this browser" in driver.find_element("css selector", ".unsaved").text
        assert problems(driver) == []
        items[0].find_element("tag name", "a").click()
        wait(driver, saved, "the correction")
        assert counts_of(survey) == [[7, 1], *COUNTS[1:]]
        driver.get(links["anna"].split("?")[0])
        assert "not saved yet" not in driver.find_element("tag name", "main").text


@pytest.mark.parametrize("seed", range(2))
def test_kills_of_the_server_lose_no_count(driver, survey, seed):
    """It is killed at random moments while counts are typed; the tab is left or stays."""
    rng = random.Random(seed)
    typed = {}
    for turn in range(3):
        with served(survey.folder) as (server, links):
            if turn == 0 or driver.current_url == "about:blank":
                enter(driver, links)
            for at in range(12):
                typed[at] = str(rng.randint(0, 99))
                write(driver, [typed[at]], begin=at)
                if at == rng.randint(0, 11):
                    server.send_signal(signal.SIGKILL)
                time.sleep(rng.choice([0, 0, 0.2, 0.5]))
        write(driver, ["5"], candidate=1, begin=turn)
        if rng.random() < 0.5:
            driver.get("about:blank")
    with served(survey.folder) as (_, links):
        driver.get(study_of(links))
        wait(driver, lambda d: saved(d) and cells(d)[:12] == list(typed.values()), "the counts")
        flat = [str(count) for row in counts_of(survey) for count in row]
        assert flat == list(typed.values())
        assert counts_of(survey, candidate=1)[:2] == [[5, 5], [5, None]]


@pytest.mark.parametrize("choice", ["page", "other"])
def test_what_is_typed_beside_the_choice_of_two_versions_is_kept(driver, survey, choice):
    with served(survey.folder) as (_, links):
        enter(driver, links)
        first = driver.current_window_handle
        driver.switch_to.new_window("tab")
        try:
            driver.get(study_of(links))
            write(driver, ["5", "1"])
            wait(driver, saved, "the other tab")
        finally:
            driver.close()
            driver.switch_to.window(first)
        write(driver, ["6", "2"])
        wait(driver, lambda d: len(buttons(d)) == 2, "the choice")
        write(driver, ["8", "9", "10"], begin=2)  # typed after the choice appeared
        assert [button.text.partition(",")[0] for button in buttons(driver)] == [
            "Those of this page: 6 / 2", "Those of the other: 5 / 1"
        ]  # fmt: skip
        assert "6 / 2, 8 / 9, 10 / –" in buttons(driver)[0].text
        assert status(driver) == "Not saved: choose between two versions"
        driver.refresh()  # the choice comes back, with all that was typed
        wait(driver, lambda d: len(buttons(d)) == 2, "the choice after a reload")
        assert cells(driver)[:6] == ["6", "2", "8", "9", "10", ""]
        assert counts_of(survey)[:3] == [[5, 1], [None, None], [None, None]]
        buttons(driver)[0 if choice == "page" else 1].click()
        wait(driver, saved, "the choice")
        wanted = [[6, 2], [8, 9], [10, None]] if choice == "page" else [[5, 1], [None, None], [None, None]]
        assert counts_of(survey)[:3] == wanted
        assert buttons(driver) == []
        driver.refresh()
        assert cells(driver)[:6] == ["" if count is None else str(count) for row in wanted for count in row]


def test_a_count_that_is_none_says_why_and_is_not_shortened(driver, survey):
    with served(survey.folder) as (_, links):
        enter(driver, links)
        for number, typed in enumerate(("100", "1.5", "-1", "1e3", "x")):
            write(driver, [*TWELVE[:3], typed, str(number)])
            wait(driver, lambda d, n=number: counts_of(survey) and counts_of(survey)[2][0] == n, "the cell after it")
            assert counts_of(survey)[:3] == [[3, 1], [4, None], [number, None]]  # never a part of it
            cell = driver.find_element("name", "c0-1-1")
            assert cell.get_attribute("value") == typed
            assert cell.get_attribute("aria-invalid") == "true"
            why = driver.find_element("id", cell.get_attribute("aria-describedby"))
            assert why.is_displayed()
            assert why.text == "Not saved: enter a whole number from 0 to 99."
            assert status(driver) == "Not saved: 1 cell needs a whole number from 0 to 99"
            driver.execute_script("document.querySelector('button.onward').click()")
            assert driver.switch_to.active_element == cell  # before those that are open
            assert status(driver) == "Not saved: 1 cell needs a whole number from 0 to 99"
            driver.refresh()
            cell = driver.find_element("name", "c0-1-1")
            assert cell.get_attribute("value") == ("" if typed in ("x", "1e3") else typed)  # words are not kept
        assert problems(driver) == []
        write(driver, ["12"], begin=3)
        wait(driver, saved, "the right count")
        assert counts_of(survey)[1] == [4, 12]
        assert driver.find_elements("css selector", ".why, [aria-invalid], [aria-describedby]") == []


def test_a_message_beside_a_cell_fits_a_narrow_window(survey):
    with served(survey.folder) as (_, links), browser(width=320) as driver:
        enter(driver, links)
        write(driver, ["100", "1.5"])
        assert len(driver.find_elements("css selector", ".why")) == 2
        assert driver.execute_script("return document.documentElement.scrollWidth <= window.innerWidth")
        assert problems(driver) == []
