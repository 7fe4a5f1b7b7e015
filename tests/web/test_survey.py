"""The pages of a survey: through the app, and in a real browser by keyboard alone, over a server that is killed."""

import os
import re
from urllib.parse import urlsplit

import pytest
from pyarrow import csv
from starlette.testclient import TestClient

from metric_oracle.base import journal
from metric_oracle.base.errors import InputError
from metric_oracle.raters.ratings import read_ratings
from metric_oracle.survey.export import export_survey, survey_status
from metric_oracle.survey.folder import open_survey
from metric_oracle.survey.pages import Pages, serve_survey
from support.browser import asked as addresses
from support.browser import browser, problems, said
from support.survey import N, cells, headed, made, saved, served, wait

PORT = 8124
OWN = f"http://127.0.0.1:{PORT}"
POST = {"sec-fetch-site": "same-origin", "origin": OWN}


@pytest.fixture
def survey(tmp_path):
    return made(tmp_path / "S")


@pytest.fixture
def client(survey):
    with TestClient(Pages(survey).app(PORT), base_url=OWN) as client:
        client.get("/", params={"token": survey.links()["anna"]})
        yield client


def asked(survey, number=0, *, counts=None, **changes):
    cells = [[0, 0]] * 6 if counts is None else counts
    given = {"id": f"save-{number:05}", "study": 0, "candidate": 0, "counts": cells, "base": 0}
    return {**given, "survey": survey.fingerprint, "rater": "anna", **changes}


def save(client, given):
    answer = client.post("/save", json=given, headers=POST)
    return answer.status_code, answer.json()


# Through the app


def test_no_page_names_an_origin_or_an_id(client, survey):
    save(client, asked(survey))
    texts = [client.get(path).text for path in ("/", *(f"/study/{i + 1}" for i in range(N)), "/study/4")]
    texts.append(client.post("/save", json=asked(survey, 1), headers=POST).text)  # a conflict
    texts.append(client.post("/save", json=asked(survey, 2, study=9), headers=POST).text)
    for text in texts:
        assert "zz-" not in text
        assert "positions" not in text
        assert "<script>alert" not in text
        assert "49" not in text.replace("&#34;", "").replace(survey.fingerprint, "")
        assert not re.search(r"<[^>]+\s(style|on\w+)\s*=", text)
    assert (
        "&lt;script&gt;alert(&#34;1&#34;)&lt;/script&gt; &amp; \u2028 \u202e ␀ &#39;quoted&#39; {{ 7*7 }}" in texts[1]
    )


def test_a_save_is_there_before_the_answer(client, survey):
    code, answer = save(client, asked(survey, counts=[[1, None], *[[None, 2]] * 5]))
    assert (code, answer) == (200, {"seq": 1, "counts": [[1, None], *[[None, 2]] * 5]})
    assert open_survey(survey.folder).log("anna").read().latest[0, 0].seq == 1
    assert save(client, asked(survey, counts=[[1, None], *[[None, 2]] * 5])) == (code, answer)
    text = client.get("/study/1").text
    assert re.search(r'name="base-0" value="1"', text)
    values = re.findall(r'name="c0-\d-\d" [^>]*value="(\d*)"', text)
    assert values == ["1", "", *["", "2"] * 5]
    assert set(re.findall(r'name="c1-\d-\d" [^>]*value="(\d*)"', text)) == {""}  # never a default 0
    assert "18 open" in client.get("/").text


def test_what_is_not_saved(client, survey, monkeypatch):
    save(client, asked(survey))
    code, answer = save(client, asked(survey, 1, counts=[[3, 3]] * 6))
    assert (code, answer["seq"], answer["counts"]) == (409, 1, [[0, 0]] * 6)
    code, answer = save(client, asked(survey, 2, rater="ben"))
    assert code == 400
    assert answer["line"].startswith("another rater's address was opened last in this browser.")
    code, answer = save(client, asked(survey, 3, counts=[[0, 100]] * 6, base=1))
    assert code == 400
    assert answer["line"].startswith(
        "the page sent a save that is not valid: counts must be 6 x 2 numbers from 0 to 99"
    )

    class Full:
        def __getattr__(self, name):
            return getattr(os, name)

        def pwrite(self, *given):
            raise OSError(28, "No space left on device")

    monkeypatch.setattr(journal, "os", Full())
    code, answer = save(client, asked(survey, 4, base=1))
    assert code == 507
    assert "the save did not reach the disk" in answer["line"]
    monkeypatch.undo()
    assert survey_status(survey.folder)[0]["saves"] == 1
    assert client.post("/save", json=asked(survey, 5, base=1)).status_code == 403
    assert client.get("/study/0").status_code == client.get("/study/4").status_code == 400
    assert "study must be from 1 to 3; got 4" in client.get("/study/4").text


def test_without_a_script(client, survey):
    fields = {f"c{i}-{row}-{side}": "0" for i in range(2) for row in range(6) for side in range(2)}
    given = {"survey": survey.fingerprint, "rater": "anna", "base-0": "0", "base-1": "0", **fields}

    def send(**changes):
        return client.post("/study/1", data={**given, **changes}, headers=POST, follow_redirects=False)

    answer = send(**{"c1-5-1": " "})
    assert (answer.status_code, answer.headers["location"]) == (303, "/study/1")
    assert survey_status(survey.folder)[0]["open_cells"] == 2 * N * 12 - 23
    answer = send(**{"base-0": "1", "base-1": "2", "c0-2-0": ""})  # a cell of the first candidate alone
    assert (answer.status_code, answer.headers["location"]) == (303, "/study/1")
    assert survey_status(survey.folder)[0]["open_cells"] == 2 * N * 12 - 23
    answer = send(**{"base-0": "3", "base-1": "4"})
    assert (answer.status_code, answer.headers["location"]) == (303, "/study/2")
    assert survey_status(survey.folder)[0]["saves"] == 5  # what is the same is not saved again
    answer = send(**{"base-1": "2", "c1-0-0": "7"})
    assert (answer.status_code, "this save is not based on the last save" in answer.text) == (400, True)
    answer = send(**{"base-1": "3", "c1-0-0": "1.5"})
    assert "a cell is neither empty nor a number from 0 to 99" in answer.text


def test_each_rater_has_his_own_order(tmp_path):
    """Counts that follow the texts of the pages are those that the export has of the same texts."""
    survey = made(tmp_path / "S", order="per-rater", seed=1)
    assert survey.order("anna") != survey.order("ben")
    seen = {}
    for rater in survey.raters:
        with TestClient(Pages(survey).app(PORT), base_url=OWN) as client:
            client.get("/", params={"token": survey.links()[rater]})
            for number in range(1, N + 1):
                text = client.get(f"/study/{number}").text
                place = re.search(r'data-study="(\d)"', text)[1]
                items = re.findall(r'<li data-study="(\d)"', client.get("/").text)
                assert items[number - 1] == place
                fields = {"survey": survey.fingerprint, "rater": rater}
                for legend, part in enumerate(text.split("<fieldset ")[1:], 1):
                    assert f"<legend>Candidate {legend}</legend>" in part
                    word, study = re.search(r">(Alpha|Beta) (\d)\.", part).groups()
                    seen.setdefault(rater, []).append((word, study))
                    names = re.findall(r'name="(base-\d|c\d-\d-\d)"', part)
                    assert {name[1 if name[0] == "c" else 5] for name in names} == {part[16]}  # data-candidate="0"
                    fields |= dict.fromkeys(names, str(10 * (word == "Beta") + int(study))) | {names[0]: "0"}
                answer = client.post(f"/study/{number}", data=fields, headers=POST, follow_redirects=False)
                onward = "/" if number == N else f"/study/{number + 1}"
                assert (answer.status_code, answer.headers["location"]) == (303, onward)
            assert "All is complete" in client.get("/").text
    assert seen["anna"] != seen["ben"]
    export_survey(survey.folder, tmp_path / "E")
    rated = read_ratings(tmp_path / "E/ratings.csv")
    studies = csv.read_csv(tmp_path / "E/samples.csv")["study_id"].to_pylist()
    for pair, counts in zip(rated.pairs, rated.counts, strict=True):
        number, kind = pair.split("/")
        assert (counts == 10 * (kind == "zz-origin-b") + int(studies[int(number)][-1])).all()


def test_two_raters_have_two_logs(client, survey):
    save(client, asked(survey))
    with TestClient(Pages(survey).app(PORT), base_url=OWN) as other:
        other.get("/", params={"token": survey.links()["ben"]})
        assert "Survey of ben" in other.get("/").text
        assert set(re.findall(r'name="c0-\d-\d" [^>]*value="(\d*)"', other.get("/study/1").text)) == {""}
        assert save(other, asked(survey, rater="ben"))[0] == 200
    assert [one["saves"] for one in survey_status(survey.folder)] == [1, 1]


def test_serving_says_what_was_torn_and_keeps_its_port(survey, monkeypatch):
    with (survey.folder / "ratings/ben.jsonl").open("ab") as file:
        file.write(b"{")
    said = []
    monkeypatch.setattr("metric_oracle.survey.pages.serve", lambda app, at: None)
    serve_survey(survey, 0, said.append)
    assert said[0] == "ben: a torn line of 1 bytes was cut off; it had not been saved"
    assert re.fullmatch(r"anna: http://127\.0\.0\.1:\d+/\?token=\S+", said[1])
    again = []
    serve_survey(survey, 0, again.append)
    assert again == said[1:]
    monkeypatch.setattr("metric_oracle.survey.pages.serve", lambda app, at: serve_survey(survey, 0, said.append))
    with pytest.raises(InputError, match=r"^port must be free"):
        serve_survey(survey, 0, said.append)


# In a browser


def test_a_survey_by_keyboard_alone(survey, tmp_path):
    """All studies by keys; the server is killed in the middle and comes back; two tabs; a reload; the export."""
    from selenium.webdriver import ActionChains, Keys

    with browser() as driver:

        def press(*keys):
            ActionChains(driver).send_keys(*keys).perform()

        def onward():
            ActionChains(driver).key_down(Keys.CONTROL).send_keys(Keys.ENTER).key_up(Keys.CONTROL).perform()

        with served(survey.folder) as (_, links):
            driver.get(links["anna"])
            wait(driver, lambda d: headed(d, "Survey of anna"), "the overview")
            assert "token" not in driver.current_url
            while driver.switch_to.active_element.text != "Begin with study 1":
                press(Keys.TAB)
            press(Keys.ENTER)
            wait(driver, lambda d: headed(d, "Study 1 of 3"), "the first study")
            while driver.switch_to.active_element.tag_name != "input":
                press(Keys.TAB)
            press("2", Keys.TAB, "1", Keys.ENTER, "z")
            wait(driver, saved, "the first candidate")
            onward()  # refused: the second candidate is open
            assert driver.find_element("css selector", ".saved").text == "12 cells are open"
            assert driver.switch_to.active_element.get_attribute("name") == "c1-0-0"
            press("x")
            assert driver.switch_to.active_element.get_attribute("aria-invalid") == "true"
            press(Keys.BACKSPACE, "3")
            wait(driver, saved, "the second candidate")
        told = survey.log("anna").read().latest
        assert told[0, 0].counts == [[2, 1], *[[0, 0]] * 5]
        assert told[0, 1].counts == [[3, None], *[[None, None]] * 5]

        # The server is dead: what is typed now waits in the browser, and is sent when it is back.
        press(Keys.TAB, "4")
        wait(driver, lambda d: "Not saved, retrying" in d.find_element("css selector", ".saved").text, "no server")
        with served(survey.folder) as (_, again):
            assert again == links
            wait(driver, saved, "what had waited")
            assert survey.log("anna").read().latest[0, 1].counts[0] == [3, 4]
            driver.refresh()
            assert cells(driver) == ["2", "1", *["0"] * 10, "3", "4", *[""] * 10]

            first = driver.current_window_handle
            driver.switch_to.new_window("tab")
            driver.get(links["anna"].split("?")[0] + "study/1")
            driver.find_element("name", "c0-0-0").send_keys(Keys.BACKSPACE, "5")
            wait(driver, saved, "the second tab")
            driver.switch_to.window(first)
            driver.find_element("name", "c0-0-0").send_keys(Keys.BACKSPACE, "6", Keys.TAB)
            wait(driver, lambda d: len(d.find_elements("css selector", ".conflict button")) == 2, "the conflict")
            assert survey.log("anna").read().latest[0, 0].counts[0] == [5, 1]
            words = [button.text for button in driver.find_elements("css selector", ".conflict button")]
            assert words[0].startswith("Those of this page: 6 / 1")
            assert words[1].startswith("Those of the other: 5 / 1")
            while not driver.switch_to.active_element.text.startswith("Those of this page"):
                press(Keys.TAB)
            press(Keys.ENTER)
            wait(driver, saved, "the choice")
            assert survey.log("anna").read().latest[0, 0].counts[0] == [6, 1]

            driver.find_element("name", "c1-1-0").send_keys("z")
            onward()
            for number in (2, 3):
                wait(driver, lambda d, n=number: headed(d, f"Study {n} of 3"), f"study {number}")
                assert driver.switch_to.active_element.tag_name == "h1"
                for _ in range(2):
                    while driver.switch_to.active_element.get_attribute("value") != "" or (
                        driver.switch_to.active_element.tag_name != "input"
                    ):
                        press(Keys.TAB)
                    press("1", "z")
                onward()
            wait(driver, lambda d: headed(d, "Survey of anna"), "the end")
            assert "All is complete and saved" in driver.find_element("tag name", "main").text

        urls = addresses(driver)
        assert len(urls) > 20
        assert {urlsplit(url).hostname for url in urls} == {"127.0.0.1"}
        seen = said(driver)
        refused = ("/save - Failed to load resource", "/favicon.ico")  # the dead server, the conflict
        assert [message for message in seen if not any(word in message for word in refused)] == []

    out = export_survey(survey.folder, tmp_path / "E")
    assert out.notes["unfinished"] == {"ben": 72}
    assert out.notes["pairs"] == 2 * N


@pytest.mark.parametrize(("width", "dark"), [(1280, True), (320, False)])
def test_every_page_fits_and_is_labelled(survey, width, dark):
    """Nothing is wider than the window; every cell has its row and column for a name; text has contrast."""
    with served(survey.folder) as (_, links), browser(width=width, dark=dark) as driver:
        driver.get(links["anna"])
        wait(driver, lambda d: headed(d, "Survey of anna"), "the overview")
        for path in ("", "study/1"):
            driver.get(links["anna"].split("?")[0] + path)
            assert driver.execute_script("return document.documentElement.scrollWidth <= window.innerWidth")
            assert len(driver.find_elements("tag name", "h1")) == 1
            assert problems(driver) == []
        names = driver.execute_script("return [...document.querySelectorAll('td input')].map((e) => e.id || e.name)")
        tree = [driver.find_element("name", name).accessible_name for name in names]
        assert tree[0] == "false prediction of finding Clinically significant"
        assert len(set(tree)) == 12
        assert driver.find_element("tag name", "fieldset").accessible_name == "Candidate 1"


@pytest.mark.parametrize(
    "number", ["0" * 5000 + "1", "9" * 5000, "\u0661", "1.0", "-1", "+1", "1_0", "\u00b2", "", "9" * 9]
)
def test_an_odd_number_in_an_address_is_told(client, capsys, number):
    for answer in (client.get(f"/study/{number}"), client.post(f"/study/{number}", headers=POST, json={})):
        assert answer.status_code in (400, 404)
    assert capsys.readouterr().err == ""
