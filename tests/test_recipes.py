"""The commands of docs/recipes.md are real: each parses, and the cheap ones run on the synthetic corpus."""

import csv
import gzip
import re
import shlex
import shutil
import zipfile
from pathlib import Path

import numpy as np
import pytest

from metric_oracle.raters.fit_composite import fit_composite
from metric_oracle.reading import reports
from metric_oracle.retrieval.building import build_index
from metric_oracle.retrieval.options import SearchOptions
from metric_oracle.retrieval.plan import retrieve
from metric_oracle.scores.scoring import score
from support import parse_command, write

RECIPES = (Path(__file__).parents[1] / "docs/recipes.md").read_text(encoding="utf-8")
# A word of the commands that are only parsed, and why.
PARSED_ONLY = {
    "--encoder": "a model that would be downloaded",
    "--metric bertscore": "an index of token states",
    "--metric radcliq": "an index of token states",
    "--backend cuda": "a GPU",
    "survey serve": "a server, which stays; web/test_survey.py runs it",
    "survey export": "raters who have finished; survey/test_create.py has such",
    "r2gen_split.csv": "the IU X-ray files; retrieval/test_iu_xray.py reads them",
    "retrieve IU iu": "the IU X-ray files; retrieval/test_iu_xray.py reads them",
    "mimic_cxr_sectioned.csv": "files of a study's images; test_cli_score.py has such",
    "cvt2": "files of a study's images; test_cli_score.py has such",
}


def commands():
    """Return the words of every `oracle ...` of the bash blocks."""
    found = []
    for block in re.findall(r"^```bash\n(.*?)^```", RECIPES, re.MULTILINE | re.DOTALL):
        for line in block.replace("\\\n", " ").splitlines():
            words = shlex.split(line, comments=True)
            if words:
                assert words[0] == "oracle", line
                found.append(words[1:])
    return found


COMMANDS = commands()
NAMED = {words[1]: words for words in COMMANDS if words[0] == "reports"}  # the line that names each set of reports


def test_there_are_commands():
    assert len(COMMANDS) > 20
    assert {"reports", "build-index", "retrieve", "score", "verify", "baseline", "table", "study"} <= {
        words[0] for words in COMMANDS
    }
    for word in PARSED_ONLY:
        assert any(word in " ".join(words) for words in COMMANDS), f"{word} is in no command any more"


@pytest.mark.parametrize("words", COMMANDS, ids=" ".join)
def test_a_command_parses(words):
    parse_command(words)


@pytest.mark.parametrize(
    "line", ["retrieve INDEX q.csv --wrong", "retrive INDEX", "baseline", "score one.csv", "retrieve I q.csv -k many"]
)
def test_the_parser_refuses(line):
    with pytest.raises((Exception, SystemExit)):
        parse_command(line.split())


@pytest.fixture(scope="module")
def world(corpus, rated, tmp_path_factory):
    """Return a folder with the files that the page names, of the synthetic corpus and the made-up ratings."""
    folder = tmp_path_factory.mktemp("recipes")
    names = {
        "train": "train.csv", "test": "test.csv", "train_graphs": "train_graphs.json",
        "test_graphs": "test_graphs.json", "test_labels": "test_labels.csv", "test_embeddings": "test_embeddings.npz",
        "test_srr": "test_srr.csv",
    }  # fmt: skip
    for key, name in names.items():
        shutil.copy(corpus[key], folder / name)
    for name, key in {
        "predicted_labels.csv": "test_labels",
        "predicted_srr.csv": "test_srr",
        "r2gen.json": "test_graphs",
    }.items():
        shutil.copy(corpus[key], folder / name)
    for name, key in {"train_images.npz": "train_embeddings", "test_images.npz": "test_embeddings"}.items():
        shutil.copy(corpus[key], folder / name)
    shutil.copy(rated.green, folder / "6_valid_raters_per_rater_error_categories.csv")
    lines = [line.split(",") for line in rated.scores.read_text().splitlines()]
    kept = [place for place, name in enumerate(lines[0]) if name != "poor"]  # a name that would need --direction
    write(folder / "scores.csv", [[cells[i] for i in kept] for cells in lines[1:]], [lines[0][i] for i in kept])

    build_index(reports(folder / "test.csv", radgraph=folder / "test_graphs.json"), folder / "TESTS")
    texts = {}
    with zipfile.ZipFile(folder / "mimic-cxr-reports.zip", "w") as archive:
        for side in ("train", "test"):
            with corpus[side].open(newline="", encoding="utf-8") as file:
                texts[side] = {row["study_id"]: row["report"] for row in csv.DictReader(file)}
            for study, text in texts[side].items():
                archive.writestr(f"files/p10/p10000001/s{study}.txt", f" FINAL REPORT\n IMPRESSION:\n\n {text}\n")
    with gzip.open(folder / "mimic-cxr-2.0.0-split.csv.gz", "wt", newline="") as file:
        csv.writer(file).writerow(["dicom_id", "study_id", "subject_id", "split"])
        for side, of_side in texts.items():
            for i, study in enumerate(of_side):
                split = "validate" if side == "train" and i % 10 == 0 else side
                csv.writer(file).writerow([f"d{study}", study, 10000001, split])

    ids = [*texts["test"]]
    for name, step in (("generated", 1), ("r2gen", 0), ("wcl", 3), ("random", 4)):
        turned = dict(zip(ids, np.roll([*texts["test"].values()], step).tolist(), strict=True))
        write(folder / f"{name}.csv", turned)
        score(folder / "test.csv", folder / f"{name}.csv").write(folder / f"{name}.parquet")
    rng = np.random.default_rng(6)
    rows = [[f"s{i // 4}", *rng.random(3).round(3), rng.integers(6)] for i in range(80)]
    write(folder / "scored_pairs.csv", rows, header=("study_id", "radgraph", "bertscore", "bleu", "errors"))
    rows = [[f"s{i // 4}", *rng.random(2).round(3), rng.integers(6)] for i in range(80)]
    write(folder / "pairs.csv", rows, header=("study_id", "radgraph", "bleu", "errors"))
    fit_composite(folder / "pairs.csv").write(folder / "weights.json")

    shards = build_index(folder / "train.csv", folder / "SET", metrics="bleu", shard_rows=60)
    for part in (1, 2):
        found = retrieve(shards, folder / "test.csv", "bleu", k=5, options=SearchOptions(part=f"{part}/2"))
        found.write(folder / f"part-{part}.parquet")
    labels = {"chexbert_labels": corpus["train_labels"], "uncertain": "positive"}
    index = build_index(
        reports(folder / "train.csv", radgraph=folder / "train_graphs.json", **labels), folder / "INDEX"
    )
    retrieve(index, folder / "test.csv", "bleu").write(folder / "bleu.parquet")
    return folder


@pytest.fixture
def here(world, tmp_path, monkeypatch):
    """Work in a copy of that folder."""
    monkeypatch.chdir(shutil.copytree(world, tmp_path / "here"))


@pytest.mark.parametrize(
    "words", [words for words in COMMANDS if not any(word in " ".join(words) for word in PARSED_ONLY)], ids=" ".join
)
def test_a_command_runs(oracle, here, words):
    if "--plot" in words:
        pytest.importorskip("matplotlib")
    for checkpoint in ("radgraph.tar.gz", "chexbert.pth"):  # only looked for
        Path(checkpoint).touch()
    if words[0] == "build-index":
        shutil.rmtree(words[words.index("--out") + 1])
    for name in NAMED.keys() & {*words[1:]} if words[0] != "reports" else ():
        code, _, err = oracle(*NAMED[name])
        assert code == 0, err
    written = [Path(words[words.index(option) + 1]) for option in ("--out", "--plot") if option in words]
    for path in written:
        if path.is_file():
            path.unlink()
    code, out, err = oracle(*words)
    assert code == 0, err
    for path in written:
        assert [*path.iterdir()] if path.is_dir() else path.stat().st_size > 100
    assert out or "--out" in words
