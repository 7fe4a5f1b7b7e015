"""What the command line answers on a machine without PyTorch, which the README's command for tests does not install."""

import sys
from importlib.util import find_spec

import pytest

from metric_oracle import cli
from metric_oracle.base.errors import install_command


@pytest.fixture(autouse=True, params=["torch", "transformers"])
def missing(request, monkeypatch):
    """Hide a package, also where it is installed, and return the name of the first that is missing."""
    monkeypatch.setitem(sys.modules, request.param, None)
    return "torch" if find_spec("torch") is None else "transformers"


@pytest.fixture(scope="module")
def index(corpus, tmp_path_factory):
    folder = tmp_path_factory.mktemp("lexical") / "INDEX"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(
            sys, "argv", ["oracle", "build-index", str(corpus["train"]), "-m", "bleu", "--out", str(folder), "-q"]
        )
        cli.main()
    return folder


def models(tmp_path):
    """Return files that only PyTorch can run: RadGraph's archive, CheXbert's checkpoint, a folder of an encoder."""
    archive, checkpoint, folder = tmp_path / "radgraph.tar.gz", tmp_path / "chexbert.pth", tmp_path / "encoder"
    archive.write_bytes(b"")
    checkpoint.write_bytes(b"")
    folder.mkdir()
    (folder / "config.json").write_text("{}")
    return archive, checkpoint, folder


def test_commands_that_run_a_model_name_the_package_and_the_command(fails, named, corpus, index, tmp_path, missing):
    archive, checkpoint, folder = models(tmp_path)
    train, test, new = corpus["train"], corpus["test"], tmp_path / "new"

    def refused(function, model, *arguments):
        match = (
            rf"{function}: {model} needs the Python package {missing}, which is not installed\. Run: pip install "
            r'"torch>=[\d.]+" "transformers\S+"$'
        )
        fails(*arguments, match=match)
        assert not new.exists()

    refused("build-index", "distilroberta-base", "build-index", train, "--encoder", "distilroberta-base", "--out", new)
    refused("build-index", archive, "build-index", train, "--radgraph", archive, "--out", new)
    refused("build-index", checkpoint, "build-index", train, "--chexbert", checkpoint, "--out", new)
    named("graphs", test, radgraph=archive)
    named("vectors", test, chexbert=checkpoint)
    refused("retrieve", archive, "retrieve", index, "graphs")
    refused("baseline random", checkpoint, "baseline", "random", index, "vectors")
    refused("rerank", folder, "rerank", index, test, "-m", "crepe", "--crepe", folder, "--pool", "bleu:5")
    refused("score", folder, "score", test, test, "--encoder", folder)
    refused("score", folder, "score", test, test, "-m", "crepe", "--crepe", folder)
    refused("study", archive, "study", index, "graphs", "--out", new)
    refused("annotate", checkpoint, "annotate", test, "--chexbert", checkpoint, "--out", tmp_path / "new.npz")
    refused(
        "train-crepe", folder, "train-crepe", test, test, corpus["test_labels"], "--base", folder, "--out", new
    )  # fmt: skip


def test_wrong_use_is_named_before_a_missing_package(fails, corpus, index):
    """To install PyTorch would not help here."""
    test = corpus["test"]
    fails(
        "retrieve", index, test, "-m", "crepe", match=r"retrieve: --metric must be one with an exact search; got 'crep"
    )
    fails("retrieve", index, test, "-m", "bertscore", match=r"retrieve: --metric must be one of bleu-1.*Build an index")
    notes = "(references|predictions): "
    match = r"score: graphs of both sides must be given for metric 'radcliq'"
    fails("score", test, test, "-m", "radcliq", match=match, notes=notes)
    fails("score", test, test, "-m", "crepe", match=r"score: --crepe must be given for metric 'crepe'; got none")
    fails(
        "build-index", test, "--out", index.parent / "B", "-m", "bertscore",
        match=r"build-index: token states of the reports must be given for metric 'bertscore'; got none\. Add --enc",
    )  # fmt: skip


def test_what_needs_no_model_runs(oracle, corpus, index):
    code, printed, _ = oracle("retrieve", index, corpus["test"], "-m", "bleu")
    assert (code, len(printed.splitlines())) == (0, 12)
    assert oracle("train-crepe", "--help")[0] == 0


def test_the_command_is_that_of_the_package_metadata():
    assert install_command("plots").startswith('pip install "matplotlib>=')
    assert "torch>=" in install_command("encoders")
    assert "faiss-cpu" in install_command("cpu")
