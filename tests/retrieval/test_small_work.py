"""Small work compiles nothing, and its answers are those of the kernels; large work is left to these."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

import metric_oracle as mo
from metric_oracle.kernels._compiling import NotStoredError
from metric_oracle.metrics import METRICS
from metric_oracle.retrieval import kernels
from metric_oracle.retrieval.kernels import PLAIN_SECONDS, SMALL, SMALL_SEARCH, backend_of, backend_of_pairs
from support import small

pytest.importorskip("nltk")  # the stemmer of METEOR

BLEU = METRICS["bleu-2"]
PAIR = PLAIN_SECONDS["bleu"]


@pytest.fixture(scope="module")
def plain(tmp_path_factory):
    """Return the answers of a process that may compile nothing and finds nothing compiled."""
    folder, tests = tmp_path_factory.mktemp("plain"), Path(__file__).parents[1]
    path = os.pathsep.join([str(tests), *filter(None, [os.environ.get("PYTHONPATH")])])
    environment = {**os.environ, "NUMBA_CACHE_DIR": str(folder / "store"), "PYTHONPATH": path}
    command = [sys.executable, "-m", "support.small", str(folder)]
    run = subprocess.run(command, env=environment, cwd=tests, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr
    return json.loads((folder / "answers.json").read_text(encoding="utf-8"))


def test_small_work_of_every_kind_is_done_without_a_compiler(plain, tmp_path):
    """A new process of the fixture has nothing stored and a compiler that raises; this one uses the kernels."""
    with pytest.MonkeyPatch.context() as patch:
        small.stand_in(patch)
        compiled = {name: small.written(answer) for name, answer in small.answers(tmp_path / "work")}
    assert plain.keys() == compiled.keys()
    for name, answer in compiled.items():
        if name.startswith("expectation"):  # products of matrices are near the scores
            for line, expected in zip(plain[name][1], answer[1], strict=True):
                assert line == pytest.approx(expected, abs=1e-6), name
        else:
            assert plain[name] == answer, name


def test_every_kernel_has_the_seconds_of_a_pair():
    assert {metric.kernel for one in METRICS.values() for metric in one.metrics.values()} - {""} == {*PLAIN_SECONDS}


def test_the_backend_follows_from_the_number_of_pairs_and_from_what_this_process_has_done(small_work):
    most = int(SMALL_SEARCH / PAIR)
    assert backend_of("auto", BLEU, most + 1) == "cpu"
    assert [backend_of("auto", BLEU, most) for _ in range(4)] == [*["reference"] * round(SMALL / SMALL_SEARCH), "cpu"]
    assert backend_of("auto", METRICS["rouge-l"], most) == "reference"  # each metric has seconds of its own
    assert backend_of("cpu", METRICS["rouge-l"], 1) == "cpu"
    assert backend_of("reference", BLEU, 10**9) == "reference"


def test_given_pairs_are_scored_by_the_kernel_once_it_is_stored(small_work):
    calls = []

    def lacks():
        calls.append(1)
        raise NotStoredError

    assert backend_of_pairs(BLEU, int(SMALL / PAIR) + 1, lacks) == "cpu"
    assert not calls
    assert backend_of_pairs(BLEU, int(0.6 * SMALL / PAIR), lacks) == "reference"
    assert backend_of_pairs(BLEU, int(0.6 * SMALL / PAIR), lacks) == "cpu"
    assert backend_of_pairs(BLEU, 1, lacks) == "reference"
    assert backend_of_pairs(BLEU, 1, lambda: None) == "cpu"
    assert len(calls) == 2


def test_a_signature_names_the_plain_scorer_unless_the_search_is_large(small_work, monkeypatch):
    corpus, tests = ["no acute process", "small effusion", "no effusion"], ["small left effusion", "none"]
    signatures = [mo.retrieve(corpus, tests, "bleu-2").signature["backend"] for _ in range(2)]
    assert signatures == ["reference"] * 2
    monkeypatch.setitem(kernels.PLAIN_SECONDS, "bleu", SMALL_SEARCH / 5.9)
    assert mo.retrieve(corpus, tests, "bleu-2").signature["backend"] == "cpu"
    # Conditions are searched by kernels alone.
    options = mo.SearchOptions(where=("rouge-l>=0.1",))
    assert mo.retrieve(corpus, tests, "rouge-l", options=options).signature["backend"] == "cpu"
