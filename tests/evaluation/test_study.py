import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from metric_oracle import api
from metric_oracle.corpora.synthetic import MODELS, write_synthetic
from metric_oracle.corpora.vectors import read_labels
from metric_oracle.errors import InputError
from metric_oracle.evaluation.study import (
    IDENTITY,
    MOST_FREQUENT,
    RANDOM,
    Model,
    compare_study,
    oracle_name,
    run_study,
)
from metric_oracle.presentation.study_folder import write_study
from metric_oracle.retrieval.expectation import expectation
from metric_oracle.retrieval.results import read_scores

pytest.importorskip("faiss")
COMMAND = Path(sys.executable).with_name("oracle")
METRICS = ["bleu-2", "rouge-l", "bertscore", "chexbert", "radgraph", "radcliq"]


@pytest.fixture(scope="module")
def world(tmp_path_factory, fake_encoder):
    """Return an index, its test reports, models with their files, and all paths."""
    folder = tmp_path_factory.mktemp("study")
    paths = write_synthetic(folder / "corpus", 300, 40, seed=2, models=True)
    directions = np.random.default_rng(2).standard_normal((14, 4, 24)).astype(np.float32)
    for side in ("train", "test", *MODELS):
        labels = read_labels(paths[f"{side}_labels"])
        vectors = sum(directions[label, labels.values[:, label]] for label in range(14))
        paths[f"{side}_embeddings"] = folder / f"{side}.npz"
        np.savez(paths[f"{side}_embeddings"], ids=np.array(labels.ids), embeddings=vectors)
    files = {
        side: {"radgraph": paths[f"{side}_graphs"], "chexbert": paths[f"{side}_embeddings"]}
        for side in ("train", "test", *MODELS)
    }
    index = api.build_index(paths["train"], folder / "I", **files["train"], encoder="fake")
    queries = api.load_queries(paths["test"], **files["test"])
    models = {name: Model(paths[name], files[name]) for name in MODELS}
    return index, queries, models, paths


@pytest.fixture(scope="module")
def systems(world):
    index, queries, models, _ = world
    steps = []
    found = run_study(index, queries, models, progress=lambda *step: steps.append(step))
    assert [done for _, done, _ in steps] == list(range(len(found)))
    assert {total for _, _, total in steps} == {len(found)}
    return found


def test_rows_and_their_order(world, systems):
    assert list(systems) == [*MODELS, *map(oracle_name, METRICS), MOST_FREQUENT, IDENTITY, RANDOM]
    table = compare_study(systems)
    assert [column.metric for column in table.columns] == METRICS
    mean = {key: cell.mean for key, cell in table.cells.items()}
    for column in table.columns:
        sign = 1 if column.higher_is_better else -1
        strong, fair, weak, chance = (sign * mean[name, column.metric] for name in (*MODELS, RANDOM))
        assert strong > fair > weak > chance
        best = sign * mean[oracle_name(column.metric), column.metric]
        assert all(sign * mean[oracle_name(metric), column.metric] <= best for metric in METRICS)
        assert table.cells[oracle_name(column.metric), column.metric].share == pytest.approx(1)
        assert table.cells[RANDOM, column.metric].share == pytest.approx(0)
        assert [name for name in systems if table.cells[name, column.metric].best] == ["strong"]


@pytest.mark.parametrize("metric", METRICS)
def test_scores_are_those_of_the_parts(world, systems, metric):
    index, queries, _, _ = world
    oracle = api.retrieve(index, queries, metric).table
    # Where nothing matches, the most frequent report answers for RadGraph, and has 0 too.
    assert systems[oracle_name(metric)].table[metric].to_pylist() == oracle["score"].to_pylist()
    own = api.baseline(index, queries, "identity", metric).table["score"]
    assert systems[IDENTITY].table[metric].to_pylist() == own.to_pylist()
    mean = expectation(index, queries, metric)
    values = systems[RANDOM].table[metric].to_numpy()
    assert values == pytest.approx(mean.table["mean"].to_numpy(), abs=1e-12 + 2 * mean.signature["error"])


def test_composite_of_other_rows_is_described_by_itself(world, tmp_path):
    """A row that lacks a graph takes part in BLEU's mean and not in the composite's."""
    _, queries, _, paths = world
    graphs = json.loads(paths["train_graphs"].read_text())
    some = dict(list(graphs.items())[: len(graphs) // 2])
    (tmp_path / "graphs.json").write_text(json.dumps(some))
    index = api.build_index(
        paths["train"], tmp_path / "I", radgraph=tmp_path / "graphs.json", metrics=["radcliq:preprint"]
    )
    found = run_study(index, queries, metrics=("bleu", "radgraph", "radcliq:preprint"))
    mean = expectation(index, queries, "radcliq:preprint").table["mean"]
    assert found[RANDOM].table["radcliq:preprint"].to_pylist() == mean.to_pylist()


def test_files_of_a_study(systems, tmp_path):
    out = tmp_path / "study"
    write_study(systems, compare_study(systems), out)
    names = {path.name for path in out.iterdir()}
    assert {"table.md", "table.tex", "table.csv", "strong.parquet", "random-expected.parquet"} <= names
    again = read_scores(out / "radcliq-oracle.parquet")
    assert again.table.equals(systems["radcliq oracle"].table)
    assert again.signature == systems["radcliq oracle"].signature
    with pytest.raises(InputError, match=r"^study: out must be a new folder; got .*study, which exists\. Remove it or"):
        write_study(systems, compare_study(systems), out)


def fails(match, world, models, **options):
    with pytest.raises(InputError, match=match) as caught:
        run_study(world[0], world[1], models, **options)
    assert "\n" not in str(caught.value)


def test_models_that_cannot_be(world, tmp_path):
    short = tmp_path / "short.csv"
    short.write_text("study_id,report\n50000300,No effusion.\n")
    match = (
        r"^study: model 'short' must have a prediction for each test report; got 39 of 40 without \('50000301', "
        r"'50000302', '50000303'\)\. Complete its file, or leave these reports out\.$"
    )
    fails(match, world, {"short": Model(short)}, metrics=("bleu",))
    match = r"^study: models must have names that no other row has; got 'identity'\. Choose another\.$"
    fails(match, world, {"identity": Model(short)}, metrics=("bleu",))
    match = (
        r"^study: models must have names that make different file names; got 'a b'\. Use other letters, digits, - and"
    )
    fails(match, world, {"a b": Model(short), "a-b": Model(short)}, metrics=("bleu",))


def test_metrics_without_a_report_in_common(world, tmp_path):
    _, queries, _, paths = world
    graphs = json.loads(paths["train_graphs"].read_text())
    (tmp_path / "graphs.json").write_text(json.dumps(dict(list(graphs.items())[:100])))
    with np.load(paths["train_embeddings"]) as arrays:
        np.savez(tmp_path / "some.npz", ids=arrays["ids"][100:], embeddings=arrays["embeddings"][100:])
    files = {"radgraph": tmp_path / "graphs.json", "chexbert": tmp_path / "some.npz"}
    index = api.build_index(paths["train"], tmp_path / "I", **files, metrics=["radgraph", "chexbert"])
    match = r"^study: the index must have a report that every metric can score; got none\. Name fewer with --metrics\.$"
    with pytest.raises(InputError, match=match):
        run_study(index, queries, metrics=("radgraph", "chexbert"))


def run(*arguments):
    done = subprocess.run([COMMAND, *map(str, arguments)], capture_output=True, text=True, check=False)
    return done.returncode, done.stdout, done.stderr


def test_command(world, tmp_path):
    index, _, _, paths = world
    given = [index.folder, paths["test"], "--metrics", "bleu,radgraph", "--radgraph", paths["test_graphs"]]
    models = [f"--model=fair={paths['fair']}", f"--model-radgraph=fair={paths['fair_graphs']}"]
    code, out, err = run("study", *given, *models, "--out", tmp_path / "study")
    assert (code, out) == (0, ""), err
    assert err.splitlines()[-1] == f"{tmp_path / 'study'}: 6 systems, 2 metrics"
    code, out, err = run("study", *given)
    records = [json.loads(line) for line in out.splitlines()]
    assert code == 0
    assert {record.get("system") for record in records} >= {"bleu-2 oracle", RANDOM}
    code, _, err = run("study", *given, f"--model-radgraph=fair={paths['fair_graphs']}")
    assert code == 2
    assert err == "error: study: model_radgraph must name a model; got 'fair', which has no --model. Add it.\n"
    code, _, err = run("study", *given, "--model", "fair")
    assert code == 2
    assert (
        err == "error: study: model must be NAME=FILE; got 'fair'. Put both sides, in quotes where there are blanks.\n"
    )
    code, _, err = run("study", *given, "--out", tmp_path / "no" / "study")
    assert code == 2
    assert err.startswith("error: study: out must be in an existing folder; got ")
