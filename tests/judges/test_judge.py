"""A judge by a function, a command, files or a model: each pair once, the same numbers, and one line for what fails."""

import itertools
import json
import math
import os
import re
import subprocess
import sys
import time
from decimal import Decimal
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest

import metric_oracle as mo
from metric_oracle.base.errors import InputError
from metric_oracle.judges.given import crepe_judge
from metric_oracle.judges.judgements import pair_ids
from support import AT_ONCE, SECRET, write

PAIRS = [("no effusion", "small effusion"), ("no effusion", SECRET), ("edema", "edema"), ("no effusion", SECRET)]
# A judge that answers with the number of common words; `{how}` is run for each pair with its number `n` from 0.
SCRIPT = """
import json, os, sys, time
{before}
for n, line in enumerate(sys.stdin):
    pair = json.loads(line)
    words = [set(pair[side].split()) for side in ("reference", "candidate")]
    answer = {{"pair": pair["pair"], "score": len(words[0] & words[1]), "length": len(words[1]), "why": "a text"}}
    {how}
    print(json.dumps(answer), flush=True)
"""


def common(pairs):
    """Return the number of common words of each pair, and the number of words of the candidate."""
    return [{"score": len({*a.split()} & {*b.split()}), "length": len({*b.split()}), "why": "a text"} for a, b in pairs]


@pytest.fixture
def command(tmp_path):
    """Return a function that writes a judge and returns the command that runs it."""

    def make(how="pass", before=""):
        script = tmp_path / "judge.py"
        script.write_text(SCRIPT.format(how=how, before=before), encoding="utf-8")
        return f"{sys.executable} {script}"

    return make


def score(command=None, pairs=PAIRS, progress=None, direction="higher", **given):
    with mo.judge(command, direction=direction, **given).opened() as judge:
        return judge.score(pairs, progress)


class Errors:
    """A stand-in for CREPE: a candidate has an error of the first category for each word."""

    def __init__(self):
        self.signature = {"model": "words"}

    def count_errors(self, pairs, *, progress=None):
        counts = np.zeros((len(pairs), 6))
        counts[:, 0] = [len(candidate.split()) for _, candidate in pairs]
        counts[:, 3] = 0.25
        return counts, 1


def test_a_function_and_a_command_give_the_same(command):
    for judge in (common, command(), command(before="print('loading a model')")):
        found = score(judge)
        assert found.scores.tolist() == [1, 0, 1, 0]
        assert {name: values.tolist() for name, values in found.components.items()} == {"length": [2, 2, 1, 2]}
        assert found.notes == {}


def test_a_command_may_write_its_numbers_as_floats(command):
    assert np.array_equal(score(command("answer['pair'] = float(answer['pair'])")).scores, score(common).scores)


@pytest.mark.parametrize("batch", [1, 2, 3, 64])
def test_a_function_gets_each_pair_once(batch):
    calls, done = [], []

    def judge(pairs):
        calls.append(pairs)
        return np.arange(len(pairs), dtype=np.float32)  # any numbers in any container

    score(judge, batch=batch, progress=done.append)
    assert [pair for call in calls for pair in call] == [*dict.fromkeys(PAIRS)]
    assert max(map(len, calls)) <= batch
    assert sum(done) == 3


def test_a_model_counts_errors():
    judge = crepe_judge(Errors())
    assert (judge.name, judge.direction, judge.best) == ("crepe", "lower", 0.0)
    found = judge.score(PAIRS)
    assert found.scores.tolist() == [2.25, 2.25, 1.25, 2.25]
    assert [*found.components] == ["nA", "nB", "nC", "nD", "nE", "nF"]
    assert found.components["nA"].tolist() == [2, 2, 1, 2]
    assert found.notes == {"truncated_pairs": 1}


def test_no_pairs(command):
    assert score(command(), []).scores.tolist() == []


def test_what_is_kept_is_not_judged_again(tmp_path, command):
    folder = tmp_path / "kept"
    first = score(common, PAIRS[:2], name="words", keep=folder)
    asked = []
    judge = lambda pairs: [asked.append(pair) or common([pair])[0] for pair in pairs]  # noqa: E731
    both = score(judge, name="words", keep=folder)
    assert asked == [PAIRS[2]]
    assert both.scores[:2].tolist() == first.scores.tolist()
    again = score(command("os._exit(9)"), name="words", keep=folder)  # another way to the same judge
    assert again.scores.tolist() == both.scores.tolist()
    score(judge, name="words", version="2", keep=folder)
    score(judge, name="other words", keep=folder)
    assert len(asked) == 1 + 3 + 3
    content = "".join(path.read_text() for path in folder.iterdir())
    assert SECRET not in content
    assert "effusion" not in content
    assert "why" not in content


def test_components_are_the_numbers_of_every_answer():
    answers = [{"score": 1, "a": 2, "b": 3, "pair": 5, "row": 7}, {"score": 0.5, "a": 1}, {"score": 2, "a": math.inf}]
    assert score(lambda pairs: answers[: len(pairs)]).components == {}
    found = score(lambda pairs: answers[:2], PAIRS[:2]).components
    assert {name: values.tolist() for name, values in found.items()} == {"a": [2, 1]}


def test_files_have_the_scores_of_pairs(tmp_path):
    ids = pair_ids(PAIRS)
    files = [
        write(tmp_path / "one.csv", [[ids[0], 0.5, 2, "text", 3], [ids[2], "", 1, "", 1]],
              ("pair", "score", "errors", "why", "rank.bleu-2")),
        tmp_path / "two.jsonl",
    ]  # fmt: skip
    lines = [{"pair": ids[1], "green_score": 0.25, "errors": 1}, {"pair": ids[2], "green_score": 1, "errors": 0}]
    files[1].write_text("".join(json.dumps(line) + "\n" for line in lines))
    with mo.judge(files=files, name="green_score").opened() as judge:  # the direction is known
        assert judge.higher_is_better
        assert judge.n_kept(PAIRS[:3]) == 3
        found = judge.score(PAIRS)
    assert found.scores.tolist() == [0.5, 0.25, 1.0, 0.25]
    assert {name: values.tolist() for name, values in found.components.items()} == {"errors": [2, 1, 0, 1]}
    line = (
        rf"^files of the judge words must have a score for each pair; got none for 2 of 3, such as pair {ids[1]}\. "
        r"Have the others judged, and add their file: `mo\.pool` with the judge as metric writes those of a pool, "
        r"`mo\.study_pairs` those of a study\.$"
    )
    with pytest.raises(InputError, match=line):
        score(files=files[0], name="words")


@pytest.mark.parametrize(
    ("rows", "line"),
    [
        ([["7", 1]], r"^pair must be an id of 64 digits, as `mo\.pool` writes it; got another in row 1 of .*p\.csv\."),
        (
            [["a" * 64, "0,5"]],
            r"^column 'score' must hold numbers .*; got a decimal comma in row 1 of .*p\.csv\. Write",
        ),
        ([["a" * 64, 1], ["a" * 64, 2]], r"^files must have one score for a pair; got another in row 2 of .*p\.csv\."),
    ],
)
def test_files_that_are_wrong(tmp_path, rows, line):
    with pytest.raises(InputError, match=line):
        score(files=write(tmp_path / "p.csv", rows, ("pair", "score")))


def test_files_without_the_column(tmp_path):
    with pytest.raises(InputError, match=r"p\.csv has no column 'score'\. Columns: 'pair', 'other'\."):
        score(files=write(tmp_path / "p.csv", [["a" * 64, 1]], ("pair", "other")))


def test_the_cost_is_told_before():
    said = []
    with mo.judge(common, name="words", direction="higher", seconds_per_pair=3).opened() as judge:
        for n, kept in ((1200, 0), (61, 1), (10_000, 0), (90_000, 0)):
            judge.check_cost(n, kept, said.append)
    assert said == [
        "words: 1,200 distinct pairs to judge; about 60.0 min",
        "words: 60 distinct pairs to judge, and 1 that are kept; about 3.0 min",
        "words: 10,000 distinct pairs to judge; about 8.3 h",
        "words: 90,000 distinct pairs to judge; about 3.1 days",
    ]
    with mo.judge(common, direction="higher", most=100, seconds_per_pair=1).opened() as judge:
        judge.check_cost(110, 10, said.append)
        assert said[-1] == "common: 100 distinct pairs to judge, and 10 that are kept; about 100 s"
        with pytest.raises(
            InputError, match=r"^most of the judge \w+ must be at least 101, the pairs to judge; got 100\. Judge fewer"
        ):
            judge.check_cost(111, 10, None)


# ---- what fails ------------------------------------------------------------------------------------------------------

MANY = [(f"reference {i % 7}", f"candidate {i}") for i in range(200)]
FAILING = {
    "1 % without an answer": ("if n % 100 == 50: continue", "2 of 200 pairs without an answer", 198),
    "1 % NaN": ("answer |= {'score': float('nan')} if n % 100 == 50 else {}",
                "2 of 200 pairs with an answer that has no number", 198),
    "1 % text": ("answer |= {'score': 'good'} if n % 100 == 50 else {}",
                 "2 of 200 pairs with an answer that has no number", 198),
    "a number beyond float64": ("answer |= {'score': 10 ** 400} if n == 9 else {}",
                                "1 of 200 pairs with an answer that has no number", 199),
    "a line without an end": ("if n == 9:\n        print('[' * 100_000)\n        continue",
                              "lines that are no answers: 1; 1 of 200 pairs without an answer", 199),
    "an answer that is no object": ("if n == 9:\n        print('[1, 2]')\n        continue",
                                    "lines that are no answers: 1; 1 of 200 pairs without an answer", 199),
    "too few lines": ("if n == 120: break", "80 of 200 pairs without an answer", 120),
    "an end": ("if n == 120: sys.exit(3)", "an end with exit code 3; 80 of 200 pairs without an answer", 120),
    "death": ("if n == 120: os.kill(os.getpid(), 9)", "an end with exit code -9; 80 of 200", 120),
    "an end after the last": ("if n == 199: print(json.dumps(answer), flush=True) or sys.exit(3)",
                              "an end with exit code 3", 200),
    "a hang": ("if n == 120: time.sleep(60)", "no line within 2 s; 80 of 200 pairs without an answer", 120),
    "a hang at the end": ("if n == 199: print(json.dumps(answer), flush=True) or time.sleep(60)",
                          "no line within 2 s", 200),
    "a number twice": ("answer |= {'pair': answer['pair'] - (n == 120)}",
                       "an answer with the number of no pair, or of one that was answered before; 80 of 200", 120),
    "numbers of its own": ("answer |= {'pair': n}",
                           "an answer with the number of no pair, or of one that was answered before; 200 of 200", 0),
}  # fmt: skip


@AT_ONCE
@pytest.mark.parametrize("case", FAILING)
def test_a_command_that_fails_loses_nothing(tmp_path, command, case):
    how, got, n_kept = FAILING[case]
    folder, begun = tmp_path / "kept", time.monotonic()
    step = f"The answers to the other {n_kept} are kept: the same call asks for the rest."
    with pytest.raises(InputError, match=f"^judge must answer each pair with a number; got {got}") as caught:
        score(command(how), MANY, name="words", keep=folder, timeout=2)
    assert str(caught.value).endswith(step)
    assert "candidate" not in str(caught.value)
    assert time.monotonic() - begun < 20
    asked = []
    judge = lambda pairs: [asked.append(pair) or len(pair[1]) for pair in pairs]  # noqa: E731
    found = score(judge, MANY, name="words", keep=folder)
    assert len(asked) == 200 - n_kept
    assert len(found.scores) == 200


def test_a_failure_names_a_pair_and_how_to_keep_the_others(command):
    line = (
        r"^judge must answer each pair with a number; got 1 of 200 pairs without an answer, such as pair "
        rf"{pair_ids(MANY)[7]}\. Give the judge keep = \"FOLDER\" and run it again, so that no answer is lost\.$"
    )
    with pytest.raises(InputError, match=line):
        score(command("if n == 7: continue"), MANY)


@pytest.mark.parametrize(
    ("answers", "line"),
    [
        ([1.0, math.nan, 2.0], "got 1 of 3 pairs with an answer that has no number, such as pair [0-9a-f]{64}: nan"),
        ([1.0, "good", 2.0], "got 1 of 3 pairs with an answer that has no number, .*: a str of 4 characters"),
        ([1.0, {"rating": 5}, None], "got 2 of 3 pairs with an answer that has no number, .*: a dict with rating"),
        ([1.0, {SECRET: 5}, 2.0], r"1 of 3 pairs with .*: a dict with no names of numbers\. Give"),
        ([1.0, {"score": math.inf, "length": 3}, 2.0], r"1 of 3 pairs with .*: score: inf\. Give"),
        ([1.0, (0.5, 0.25, 0.4), 2.0], "1 of 3 pairs with an answer that has no number, .*: a tuple of 3 items"),
        (np.ones((3, 2)), r"3 of 3 pairs with an answer that has no number, .*: a ndarray of shape \(2,\)"),
        ([1.0, 10**400, 2.0], "1 of 3 pairs with an answer that has no number, .*: a int"),
        ({1.0, 2.0, 3.0}, r"^judge must return its scores in the order of the pairs; got a set\. Return a list\."),
        (b"abc", r"^judge must return its scores in the order of the pairs; got a bytes\."),
        (itertools.chain({1.0, 2.0, 3.0}), r"^judge must return its scores in the order of the pairs; got a chain\."),
        ([True, 1, 2], "got 1 of 3 pairs with an answer that has no number"),
        ([1.0, 2.0], r"judge must return one score for each pair; got 2 for 3\. Return a list\."),
        (0.5, r"judge must return one score for each pair; got 1 for 3\."),
        ("0.5", r"judge must return one score for each pair; got 1 for 3\."),
        ({"score": 1}, r"judge must return one score for each pair; got 1 for 3\."),
        (None, r"judge must return one score for each pair; got 1 for 3\."),
    ],
)
def test_a_function_that_fails(answers, line):
    with pytest.raises(InputError, match=line):
        score(lambda pairs: answers)


@pytest.mark.parametrize(
    "answers",
    [
        np.array([[0.5], [1.0], [2.0]]),
        ["0.5", " 1 ", "2e0"],
        [Decimal("0.5"), Fraction(1), np.float32(2)],
        [{"green_score": 0.5}, {"GREEN_Score": "1"}, {"score": [2]}],
        map(float, ["0.5", "1", "2"]),
    ],
)
def test_what_has_one_meaning_is_read(answers):
    assert score(lambda pairs: answers).scores.tolist() == [0.5, 1, 2, 1]


def test_an_asynchronous_function_is_told():
    async def judge(pairs):
        return [1.0] * len(pairs)

    with pytest.raises(InputError, match=r"^judge must be a function that returns its scores; got a coroutine\. Use"):
        score(judge)


def test_the_name_of_a_number_is_no_text_of_a_report():
    pairs = [("no effusion", "edema"), ("edema", "edema")]
    answer = {"score": 1, "no acute effusion": 2, "edema": 3, "n(edema)": 4, SECRET: 5}
    found = score(lambda given: [answer] * len(given), pairs).components
    assert {name: values.tolist() for name, values in found.items()} == {"n(edema)": [4, 4]}


def test_the_error_of_a_function_passes_and_what_it_answered_is_kept(tmp_path):
    asked = []

    def judge(pairs):
        if len(asked) == 150:
            raise ConnectionError("the server is gone")
        asked.extend(pairs)
        return [1.0] * len(pairs)

    with pytest.raises(ConnectionError, match="the server is gone"):
        score(judge, MANY, batch=10, name="served", keep=tmp_path / "kept")
    score(lambda pairs: asked.extend(pairs) or [1.0] * len(pairs), MANY, name="served", keep=tmp_path / "kept")
    assert asked == MANY


@pytest.mark.parametrize(
    ("given", "line"),
    [
        ({}, r"^the judge judge has neither a command nor files\. A command is asked; files have the scores that it g"),
        ({"command": common, "files": "x.csv"}, r"^judge: give command or files, and not both\. A command is asked, f"),
        *(({"command": common, "name": name},
           r"^judge: name must be printable, without a comma, and that of no metric and no column of this tool; got "
           rf"{re.escape(repr(name))}\. Choose another\.$")
          for name in ("BLEU-2", "query_id", "prediction", "composite", "bleu-2.precision_1", "a\tb", "\x1b[31mred",
                       "a,b")),
        ({"command": common, "name": "GREEN Score", "direction": "lower"},
         r"^judge: direction must be that of the known tool whose name the judge has; got lower for 'GREEN Score', of "
         r"which higher is better\. Correct it, or choose another name\."),
        ({"command": common, "direction": None},
         r"^judge: direction must be given for a judge whose name is not that of a known tool; got none for 'common'\. "
         r"Add direction = \"higher\" or direction = \"lower\"\.$"),
        ({"command": common, "direction": "up"}, r"^judge: direction must be one of higher, lower; got 'up'\. Choose"),
        ({"command": common, "direction": True}, r"^judge: direction must be a string or None; got True\. The call is"),
        ({"command": 5}, r"^judge: command must be a function of 1 argument, a string or None; got 5\. The call is"),
        ({"command": lambda: [1.0]}, r"^judge: command must be a function of 1 argument, a string or None; got a func"),
        ({"files": 5}, r"^judge: files must be a path, a list of paths or None; got 5\. The call is"),
        ({"command": common, "higher_is_better": True}, r"^judge: there is no argument 'higher_is_better'\. Its argum"),
        ({"command": common, "judge_version": "2"}, r"^judge: there is no argument 'judge_version'\. Did you mean 've"),
        ({"command": common, "timeout": 5}, r"^judge: timeout must be left out for a judge that is no command; got"),
        ({"command": "true", "timeout": 0}, r"^judge: timeout must be a number above 0; got 0\. Choose another number"),
        ({"command": "true", "batch": 5}, r"^judge: batch must be left out for a judge that is no function; got a val"),
        ({"command": common, "batch": 0}, r"^judge: batch must be an int of at least 1; got 0\. Choose another number"),
        ({"command": common, "most": 0}, r"^judge: most must be an int of at least 1; got 0\. Choose another number"),
        ({"command": common, "seconds_per_pair": 0}, r"^judge: seconds_per_pair must be a number above 0; got 0\. Cho"),
        ({"command": common, "best": math.nan}, r"^judge: best must be a number; got nan\. Choose another\.$"),
        ({"command": common, "keep": "K"}, r"^judge: name must be given with keep; got None\. It says whose judgement"),
        ({"command": " "}, r"^judge: command must name a program, with each quote closed; got none\. Check it\.$"),
        ({"command": "python 'my judge.py"}, r"^judge: command must name a program, with each quote closed; got none"),
        ({"command": "/no/such/program -x"}, r"^command must be one that starts; got /no/such/program \(No such f"),
        ({"command": common, "best": 0.5}, r"^best must be a score that none is better than, as 1 is; got 0\.5\."),
        ({"command": common, "best": 0.5, "direction": "lower"}, r"that none is better than, as 0 is; got 0\.5\."),
        ({"command": "no\0such"}, r"^command must be one that starts; got no\\0such \(it has a NUL char"),
        ({"files": "none.csv"}, r"^there is no file none\.csv"),
    ],
)  # fmt: skip
def test_what_describes_no_judge_is_one_line(given, line):
    with pytest.raises(mo.MetricOracleError, match=line) as caught:
        score(**given)
    assert "\n" not in str(caught.value)


def test_a_folder_keeps_the_scores_of_files(tmp_path):
    """The scores of files complete a folder, and are in it afterwards."""
    score(common, PAIRS[:2], name="words", keep=tmp_path / "K")
    rest = [*dict.fromkeys(PAIRS[2:])]
    numbers = [answer["score"] if isinstance(answer, dict) else answer for answer in common(rest)]
    file = write(tmp_path / "p.csv", zip(pair_ids(rest), numbers, strict=True), ("pair", "words"))
    given = {"name": "words", "keep": tmp_path / "K"}
    found = score(files=file, **given)
    assert found.scores.tolist() == score(common).scores.tolist()
    assert score(lambda pairs: 1 / 0, **given).scores.tolist() == found.scores.tolist()
    write(file, [[pair_ids(PAIRS)[0], 0.125]], ("pair", "words"))
    with pytest.raises(InputError, match=r"^files must have one score for a pair; got another in .*K\. Leave one out"):
        score(files=file, **given)


def test_a_lambda_has_no_name():
    judge = mo.judge(lambda pairs: [], direction="lower")
    assert (judge.name, judge.direction, repr(judge)) == ("judge", "lower", "<judge judge>")


def test_the_judge_ends_with_the_call(tmp_path, command):
    """A judge that is stopped does not stay behind."""
    log = tmp_path / "pid"
    with pytest.raises(InputError, match=r"no line within 1 s"):
        score(command(f"open({str(log)!r}, 'w').write(str(os.getpid())); time.sleep(60)"), timeout=1)
    with pytest.raises(ProcessLookupError):
        os.kill(int(log.read_text()), 0)


WRAPPER = """
import os, subprocess, sys, time
helper = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
open({log!r}, "w").write(str(helper.pid))
"""


def has_ended(pid):
    """Tell whether a process has ended, or does so within a while."""
    for _ in range(200):
        try:
            if Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z":
                return True
        except FileNotFoundError:
            return True
        time.sleep(0.05)
    return False


@pytest.mark.parametrize("how", ["an end", "a hang", "an error"])
def test_all_that_a_judge_started_ends_with_the_call(tmp_path, command, how):
    """Also a child that holds its output, after whose parent's end no answer can come."""
    log = tmp_path / "pid"
    judge = command("time.sleep(60)" if how == "a hang" else "pass", before=WRAPPER.format(log=str(log)))
    if how == "an end":
        assert score(judge).scores.tolist() == [1, 0, 1, 0]
    elif how == "a hang":
        with pytest.raises(InputError, match=r"no line within 2 s"):
            score(judge, timeout=2)
    else:
        with pytest.raises(ZeroDivisionError):
            score(judge, progress=lambda n: 1 / 0)
    assert has_ended(int(log.read_text()))


INTERRUPTED = """
import os, signal, sys, threading
import polars as pl
import metric_oracle as mo
pl.DataFrame({"a": [1]}).lazy().group_by("a").len().collect()

def fire():
    while not os.path.exists(sys.argv[1]):
        pass
    os.kill(os.getpid(), signal.SIGINT)

threading.Thread(target=fire, daemon=True).start()
judge = f"sh -c 'echo $$ > {sys.argv[1]}; sleep 600'"
try:
    with mo.judge(judge, direction="higher").opened() as opened:
        opened.score([("a", "b")])
except KeyboardInterrupt:
    print("interrupted")
"""


def test_an_interruption_ends_the_wait_for_a_silent_judge(tmp_path):
    log = tmp_path / "pid"
    done = subprocess.run([sys.executable, "-c", INTERRUPTED, log], capture_output=True, text=True, timeout=300)
    assert (done.stdout, done.stderr) == ("interrupted\n", "")
    assert has_ended(int(log.read_text()))


def test_a_command_may_indent_its_answers(command):
    how = "print('a library says {')\n    print(json.dumps(answer, indent=2), flush=True)\n    continue"
    found = score(command(how))
    assert found.scores.tolist() == score(common).scores.tolist()
    assert found.components["length"].tolist() == [2, 2, 1, 2]


def test_one_number_of_several_is_not_guessed():
    """A score under another name is read where it is the only number; beside others it could be any of them."""

    def mean(**numbers):
        judge = mo.judge(lambda pairs: [numbers for _ in pairs], direction="higher")
        found = mo.score(["a"], ["b"], ["bleu", judge])
        return [*found.mean().values()]

    assert mean(green_score=0.5)[1:] == [0.5]
    with pytest.raises(InputError, match=r"^score: judge must answer each pair with a number"):
        mean(green_score=0.5, other=1.0)
