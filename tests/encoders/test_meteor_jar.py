"""METEOR 1.5 is pycocoevalcap's, from the raw text on; it is no nltk METEOR, and has no oracle.

What it asks the program, and what it does where the program is lacking or fails, is seen with a stand-in for Java.
"""

import json
import random
import shutil
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

import metric_oracle as mo
from metric_oracle.base.errors import BackendError
from metric_oracle.corpora.reports import read_reports
from metric_oracle.encoders import meteor_jar
from metric_oracle.findings.results import read_scores
from metric_oracle.tables.compare import compare
from support import SECRET, published

NAME = "meteor:1.5"
GOLDEN = json.loads((Path(__file__).parents[1] / "golden/meteor_jar.json").read_text(encoding="utf-8"))
PAIRS, MADE_UP = GOLDEN["pairs"], GOLDEN["made_up"]
# Answers as the program does, with a word's length for its count; notes what it is asked.
STAND_IN = """#!{python}
import sys
for line in sys.stdin:
    open({asked!r}, "a", encoding="utf-8").write(line)
    what, *fields = line.rstrip("\\n").split(" ||| ")
    if what == "SCORE":
        print(len(fields[0].split()), len(fields[-1].split()))
    else:
        sides = [tuple(map(int, field.split())) for field in fields]
        print(*(a / (a + b) for a, b in sides), sum(b for _, b in sides), sep="\\n")
    sys.stdout.flush()
"""


@pytest.fixture
def java():
    published("pycocoevalcap")
    if shutil.which("java") is None:
        pytest.skip("Java is not installed: METEOR 1.5 is a Java program")


@pytest.fixture
def stand_in(tmp_path, monkeypatch):
    """Put a script in the place of Java and a folder in that of pycocoevalcap; return what makes the script."""
    import sys

    (tmp_path / "meteor").mkdir()
    (tmp_path / "meteor" / meteor_jar.JAR).touch()
    package = SimpleNamespace(submodule_search_locations=[str(tmp_path)])
    monkeypatch.setattr(meteor_jar, "find_spec", lambda name: package)
    monkeypatch.setattr(meteor_jar.shutil, "which", lambda name: str(tmp_path / name))

    def write(script=STAND_IN):
        program, asked = tmp_path / "java", tmp_path / "asked.txt"
        program.write_text(script.format(python=sys.executable, asked=str(asked)), encoding="utf-8")
        program.chmod(0o755)
        return asked

    return write


def test_real_reports_have_the_published_values(java, iu_xray):
    by_id = {}
    for section in ("impression", "findings"):
        read = read_reports(iu_xray / "indiana_reports.csv", mo.Read(section=section))
        by_id |= {(section, key): text for key, text in zip(read.ids, read.texts, strict=True)}
    pairs = [(by_id[section, reference], by_id[section, candidate]) for section, candidate, reference, _ in PAIRS]
    pairs += [(reference, candidate) for candidate, reference, _ in MADE_UP]
    found, noted = meteor_jar.MeteorJar().score_pairs(pairs)
    expected = np.array([pair[-1] for pair in (*PAIRS, *MADE_UP)])
    assert len(expected) > 300
    assert np.abs([score for score, _ in found] - expected).max() < 1e-12
    assert noted == {"corpus": pytest.approx(GOLDEN["corpus"], abs=1e-12)}
    other = mo.score(*(dict(enumerate(side)) for side in zip(*pairs[:50], strict=True)), "meteor:nltk-stems")
    assert abs(expected[:50] - other.values("meteor:nltk-stems")).mean() > 0.03  # never one for the other


def test_raw_texts_score_as_by_the_wrapper(java):
    """Texts of difficult characters, but for those that end a line, which the wrapper cannot take."""
    rng = random.Random(5)
    words = ["No", "acute", "process", "effusion", "1.5cm", "Größe", "Лёгкие", "x-ray", "|||", "İ"]
    apart = [
        " ",
        " ",
        "  ",
        ". ",
        "\t",
        *map(chr, (0x0C, 0x1C, 0x1F, 0x85, 0xA0, 0xAD, 0x2003, 0x200B, 0x2028, 0x3000)),
    ]
    made = ["".join(rng.choice(words) + rng.choice(apart) for _ in range(rng.randint(0, 8))) for _ in range(120)]
    pairs = [
        (reference.replace("|||", ""), candidate) for reference, candidate in zip(made[::2], made[1::2], strict=True)
    ]
    tool = published("pycocoevalcap.meteor.meteor").Meteor()
    truth, given = ({i: [pair[side]] for i, pair in enumerate(pairs)} for side in (0, 1))
    whole, expected = tool.compute_score(truth, given)
    tool.meteor_p.kill()
    for pipe in (tool.meteor_p.stdout, tool.meteor_p.stderr):
        pipe.close()
    found, noted = meteor_jar.MeteorJar().score_pairs(pairs)
    assert [score for score, _ in found] == pytest.approx(expected, abs=1e-12)
    assert noted["corpus"] == pytest.approx(whole, abs=1e-12)
    assert sum(0 < score < 1 for score in expected) > 20


def test_line_breaks_are_blanks(java):
    texts = ["No acute\nprocess.", "No acute\r\nprocess.", "No acute process.\n"]
    found, _ = meteor_jar.MeteorJar().score_pairs([("No acute process.", text) for text in texts])
    assert [score for score, _ in found] == [1.0] * 3


def test_a_column_like_any_other(stand_in, oracle, tmp_path):
    asked = stand_in()
    truth = {"a": "No ||| acute\ndisease.\tX", "b": "heart", "c": "No  acute disease.\tX"}
    for name, texts in (("truth", truth), ("given", {**truth, "b": "the heart is œ"})):
        (tmp_path / f"{name}.json").write_text(json.dumps(texts), encoding="utf-8")
    out = tmp_path / "s.csv"
    both = tmp_path / "truth.json", tmp_path / "given.json"
    code, shown, err = oracle("score", *both, "-m", NAME, "--out", out, "--format", "table")
    assert code == 0, err
    assert "12.0000" in next(line for line in shown.splitlines() if f"{NAME} of the corpus" in line)
    counts = "4 4 ||| 1 4 ||| 4 4"
    # Each distinct pair once; what separates fields, and breaks of lines, are no part of a text.
    assert asked.read_text(encoding="utf-8").splitlines() == [
        "SCORE ||| No  acute disease.\tX ||| No  acute disease.\tX", "SCORE ||| heart ||| the heart is œ",
        f"EVAL ||| {counts}",
    ]  # fmt: skip
    assert out.read_text().replace('"', "").splitlines() == [f"query_id,{NAME}", "a,0.5", "b,0.2", "c,0.5"]
    scores = read_scores(out)
    assert scores.signature["noted"] == {NAME: {"corpus": 12.0}}
    how = scores.signature["metrics"][NAME]
    assert how["representation"]["meteor_jar"]["encoder"]["model"] == meteor_jar.JAR
    assert mo.compute(predictions=["a b"], references=["a"], metrics=NAME) == {NAME: pytest.approx(1 / 3)}
    assert mo.reward(NAME)(completions=["a b", "c"], reference=["a", "c"]) == pytest.approx([1 / 3, 1 / 2])
    # The number of all pairs is another of each system, and keeps none out of a table.
    other = mo.score({"a": "x", "b": "y", "c": "z"}, {"a": "x", "b": "y z", "c": "z"}, NAME)
    again = mo.score({"a": "x", "b": "y", "c": "z"}, {"a": "x", "b": "y", "c": "z"}, NAME)
    assert [one.signature["noted"][NAME]["corpus"] for one in (other, again)] == [4.0, 3.0]
    assert compare({"A": other, "B": again}, resamples=200).cells["B", NAME].mean == 0.5


def test_there_is_no_oracle(fails, corpus, tmp_path_factory, oracle):
    index = tmp_path_factory.mktemp("index") / "INDEX"
    assert oracle("build-index", corpus["train"], "--out", index, "-m", "bleu", "-q")[0] == 0
    fails("retrieve", index, corpus["test"], "-m", NAME, match=(
        r"retrieve: --metric must be one with an exact search; got 'meteor:1\.5', whose model reads reference and "
        r"candidate at once\. Use oracle score\.$"
    ))  # fmt: skip


@pytest.mark.parametrize("what", ["java on the PATH", r"meteor-1\.5\.jar of pycocoevalcap"])
def test_without_it(stand_in, monkeypatch, what, fails, corpus):
    """Refused before anything is read."""
    if what.startswith("java"):
        monkeypatch.setattr(meteor_jar.shutil, "which", lambda name: None)
    else:
        monkeypatch.setattr(meteor_jar, "find_spec", lambda name: None)
    match = (
        rf"score: meteor:1\.5 must have Java and pycocoevalcap installed; got no {what}\. Install .*\. meteor:nltk is "
        r"another metric\.$"
    )
    fails("score", corpus["test"], corpus["test"], "-m", NAME, match=match)


ENDS = "#!{python}\nimport sys\nsys.stdin.readline()\nprint('1 1')\n"
CHATS = STAND_IN.replace("sum(b for _, b in sides)", "'Error: a word'")


@pytest.mark.parametrize(("script", "got"), [(ENDS, "an end"), (CHATS, "another answer"), ("#!/bin/false\n", "an end")])
def test_a_program_that_fails(stand_in, script, got):
    stand_in(script)
    match = rf"^score: meteor-1\.5\.jar must print numbers for each pair; got {got} before the last pair\. Run it by"
    with pytest.raises(BackendError, match=match) as raised:
        mo.score([f"{SECRET} a b"] * 3, [f"{SECRET} c", "d", "e " * 9999], NAME)
    assert SECRET not in str(raised.value)
