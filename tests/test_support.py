"""What keeps the other tests honest is honest itself."""

import random

import pytest

from support import SECRET, assert_refused, lacking, published
from support.sequences import subsequence

LINE = "error: f: a must be b; got c. Do d.\n"


def test_published_files_and_tools_may_lack_unless_they_are_required(monkeypatch):
    monkeypatch.delenv("ORACLE_REQUIRE_DATA", raising=False)
    with pytest.raises(pytest.skip.Exception, match=r"^there is no no_such_tool$"):
        published("no_such_tool")
    monkeypatch.setenv("ORACLE_REQUIRE_DATA", "1")
    for call in (lambda: published("no_such_tool"), lambda: lacking("there is no no_such_tool")):
        with pytest.raises(pytest.fail.Exception, match=r"^ORACLE_REQUIRE_DATA=1, but there is no no_such_tool$"):
            call()
    assert published("json").__name__ == "json"


def test_refusals():
    assert_refused((2, "", LINE), r"f: a must be b; got c\. Do d\.$")
    assert_refused((2, "", f"note: 1\n{LINE}"), r"f: ", notes="note: ")
    for outcome in (
        (1, "", LINE),
        (2, "x", LINE),
        (2, "", LINE[:-1]),
        (2, "", f"Traceback\n{LINE}"),
        (2, "", LINE + LINE),
        (2, "", LINE.replace("c", SECRET)),
        (2, "", LINE.replace("error", "warning")),
        (2, "", LINE.replace("must", "should")),
    ):
        with pytest.raises(AssertionError):
            assert_refused(outcome, "f: a must be b")


def test_subsequence_is_that_of_the_table():
    rng = random.Random(4)
    for _ in range(200):
        a, b = ([rng.choice("abcd") for _ in range(rng.randrange(12))] for _ in range(2))
        row = [0] * (len(b) + 1)
        for x in a:
            new = [0]
            for j, y in enumerate(b):
                new.append(row[j] + 1 if x == y else max(row[j + 1], new[j]))
            row = new
        assert subsequence(a, b) == row[-1]
