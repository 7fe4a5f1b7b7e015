"""Every public object can be sent to another process: those that the examples of the docstrings make, and errors."""

import doctest
import inspect
import pickle
import shutil
import sys
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path

import pytest

import metric_oracle as mo
from metric_oracle.synthetic.example import write_example

OBJECTS = {name: getattr(mo, name) for name in mo.__all__}


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """Return one object of each class of this package that the examples make and its folder, by name of the class."""
    found = {}

    def note(value):
        if type(value).__module__.startswith("metric_oracle"):
            found.setdefault(type(value).__qualname__, (value, Path.cwd()))

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "displayhook", note)
        note(mo.judge("python judge.py", name="words", direction="higher"))  # one that is a function goes as it does
        files = tmp_path_factory.mktemp("pickled") / "files"
        write_example(files)
        for name, public in OBJECTS.items():
            patch.chdir(shutil.copytree(files, files.with_name(name)))
            methods = [public, *(vars(public).values() if inspect.isclass(public) else ())]
            for text in filter(None, (getattr(one, "__doc__", None) for one in methods)):
                names = {"mo": mo}
                for example in doctest.DocTestParser().get_examples(text):
                    if not example.options:
                        exec(compile(example.source, name, "single"), names)
                for value in names.values():
                    note(value)
        patch.chdir(files)
        graphs = mo.reports("test.csv", radgraph="test_graphs.json")
        index = mo.build_index("train.csv", "INDEX", metrics="bleu")
        pairs = mo.mine(index, "bleu", "p.parquet", k=1, selection=mo.Selection(1))
        written = mo.pairs(pairs.path, shape="n-tuple", out="q.parquet", index=index)
        scores, expected = mo.score("test.csv", "strong.csv", "bleu"), mo.expectation(index, ["edema"], "bleu")
        for value in (
            scores,
            graphs.load(),
            graphs,
            mo.Selection(1),
            mo.Layout(),
            mo.Read("findings"),
            expected,
            written,
            *mo.list_metrics(),
        ):
            note(value)
        with pytest.raises(mo.MetricOracleError) as refused:
            mo.read_reports("absent.csv")
        note(refused.value)
    return found


def sent(value, tool=pickle):
    return tool.loads(tool.dumps(value))


@pytest.mark.filterwarnings("ignore:ids. study_id of the references is joined with id of the samples")
def test_every_object_survives(made, monkeypatch):
    assert len(made) > 30
    for name, (value, folder) in made.items():
        monkeypatch.chdir(folder)
        again = sent(value)
        assert type(again) is type(value), name
        assert repr(again).replace(f"{folder}/", "") == repr(value), name
    for name, public in OBJECTS.items():
        assert sent(public) is public, name
    assert {name for name, one in OBJECTS.items() if inspect.isclass(one)} <= {"MetricOracleError", *made}


@pytest.mark.parametrize("tool", ["pickle", "cloudpickle"])
def test_rewards_survive(tool, tmp_path):
    tool = pytest.importorskip(tool)
    index = mo.build_index(["no edema", "clear", "mild edema"], tmp_path / "I", metrics="cider-d")
    given = {"completions": ["no edema", "edema"], "ground_truth": ["no edema", None], "prompts": ["a", "a"]}
    for reward in (
        mo.reward("rouge-l"),
        mo.reward("rouge-l", column="ground_truth"),
        mo.reward("cider-d:corpus", index=index),
        mo.reward("cider-d:corpus", index=index.folder),
        mo.consensus_reward("bleu"),
        mo.reward("labels:f1", sources={"labels": labels_of}),
    ):
        again = sent(reward, tool)
        assert again.__name__ == reward.__name__
        assert again(**given) == reward(**given)
    wanted = "prompts must be one value for each of 1 completions"
    with pytest.raises(mo.MetricOracleError, match=wanted):
        sent(mo.consensus_reward("bleu"), tool)(completions=["a"])


def labels_of(texts):
    return {str(i): {"edema": float("edema" in text)} for i, text in enumerate(texts)}


def test_what_only_cloudpickle_can_send():
    cloudpickle = pytest.importorskip("cloudpickle")
    reward = mo.reward("labels:f1", sources={"labels": lambda texts: labels_of([*texts])})
    given = {"completions": ["no edema", "edema"], "reference": ["no edema", "clear"]}
    assert sent(reward, cloudpickle)(**given) == reward(**given)


def test_another_process_scores_the_same(tmp_path):
    index = mo.build_index(["no edema", "clear", "mild edema"], tmp_path / "I", metrics="bleu")
    reward = mo.reward("bleu")
    arguments = [None], ["no edema"]
    with ProcessPoolExecutor(1, get_context("spawn")) as pool:
        assert pool.submit(reward, *arguments, reference=["mild edema"]).result() == reward(
            *arguments, reference=["mild edema"]
        )
        found = pool.submit(mo.retrieve, index, ["edema"], "bleu").result()
        assert found.table.equals(mo.retrieve(index, ["edema"], "bleu").table)
        metric = next(one for one in mo.list_metrics() if one.name == "radcliq")
        assert pool.submit(repr, metric).result() == repr(metric)
