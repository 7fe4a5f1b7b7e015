import csv
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
from functools import partial
from hashlib import sha256

import numpy as np
import pytest

import metric_oracle as mo
from metric_oracle.base import checksum
from metric_oracle.base.errors import InputError
from metric_oracle.corpora.label_tables import read_labels
from metric_oracle.findings.results import read_results, read_scores
from metric_oracle.metrics import get_metric
from metric_oracle.retrieval.building import build_index
from metric_oracle.retrieval.plan import retrieve
from metric_oracle.scores import sampled
from metric_oracle.scores.baselines import baseline
from metric_oracle.scores.expectation import expectation
from metric_oracle.scores.scoring import score
from metric_oracle.synthetic.corpus import MODELS, write_synthetic
from metric_oracle.tables import study, study_folder
from metric_oracle.tables.study import (
    IDENTITY,
    MOST_FREQUENT,
    RANDOM,
    compare_study,
    oracle_name,
)
from metric_oracle.tables.study_folder import STEPS, write_study
from metric_oracle.verification.verify import verify
from support import write

METRICS = ["bleu-2", "rouge-l", "radgraph", "chexbert", "bertscore", "radcliq"]


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
    index = build_index(mo.reports(paths["train"], encoder="fake", **files["train"]), folder / "I")
    queries = mo.reports(paths["test"], **files["test"]).load()
    models = {name: mo.reports(paths[name], **files[name]) for name in MODELS}
    return index, queries, models, paths


@pytest.fixture(scope="module")
def systems(world, tmp_path_factory):
    index, queries, models, _ = world
    steps, place = [], tmp_path_factory.mktemp("steps")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tempfile, "tempdir", str(place))
        found = study.study(index, queries, models, progress=lambda *step: steps.append(step))
    done = [done for _, done, _ in steps]
    assert done == sorted(done)
    assert len(set(done)) > 20
    assert {total for _, _, total in steps} == {done[-1]}
    assert {name for name, *_ in steps} >= {"strong", "bleu-2 oracle: search", f"{RANDOM}: radgraph"}
    assert os.listdir(place) == []
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


def test_metrics_over_token_states_come_last(world):
    """Their steps take minutes at full size: all else can be read before."""
    index, queries, _, _ = world
    steps = {}
    study.study(index, queries, metrics=("bertscore", "bleu"), progress=lambda name, *_: steps.setdefault(name))
    of_bleu = ["bleu-2 oracle: search", "bleu-2 oracle", MOST_FREQUENT, IDENTITY, f"{RANDOM}: bleu-2"]
    of_bertscore = ["bertscore oracle: search", "bertscore oracle", RANDOM, f"{RANDOM}: bertscore"]
    assert list(steps) == [*of_bleu, *of_bertscore]


def test_test_reports_are_encoded_once(world, fake_encoder, monkeypatch):
    """Searches, expected scores and rows under BERTScore and RadCliQ, a model's too, share the token states."""
    index, queries, models, _ = world
    batches = []
    run = fake_encoder.run

    def counted(self, ids):
        batches.append(ids)
        return run(self, ids)

    monkeypatch.setattr(fake_encoder, "run", counted)

    def batches_of(call):
        batches.clear()
        call()
        return len(batches)

    once = batches_of(lambda: retrieve(index, queries, "bertscore"))
    assert once > 1
    metrics = ("bertscore", "radcliq", "rouge-l")
    assert batches_of(lambda: study.study(index, queries, metrics=metrics)) == once
    predictions = batches_of(lambda: retrieve(index, models["fair"].data, "bertscore"))
    given = {"fair": models["fair"]}
    assert batches_of(lambda: study.study(index, queries, given, metrics=metrics)) == once + predictions


@pytest.mark.parametrize("metric", METRICS)
def test_scores_are_those_of_the_parts(world, systems, metric):
    index, queries, _, _ = world
    oracle = retrieve(index, queries, metric).table
    # Where nothing matches, the most frequent report answers for RadGraph, and has 0 too.
    assert systems[oracle_name(metric)].table[metric].to_pylist() == oracle["score"].to_pylist()
    own = baseline(index, queries, "identity", metric).table["score"]
    assert systems[IDENTITY].table[metric].to_pylist() == own.to_pylist()
    mean = expectation(index, queries, metric)
    values = systems[RANDOM].table[metric].to_numpy()
    assert values == pytest.approx(mean.table["mean"].to_numpy(), abs=1e-12 + 2 * mean.signature["error"])


def test_a_set_of_shards_gives_the_study_of_its_index(world, tmp_path):
    _, _, _, paths = world
    found = []
    for rows in (None, 130):
        index = build_index(paths["train"], tmp_path / f"I{rows}", metrics="bleu,rouge-l,cider-d", shard_rows=rows)
        queries = mo.reports(paths["test"]).load()
        metrics = ["bleu-2", "rouge-l", "cider-d:corpus"]
        found.append(study.study(index, queries, {"fair": mo.reports(paths["fair"])}, metrics=metrics))
    one, other = found
    assert list(one) == list(other)
    for name in one:
        for metric in metrics:
            # Of a mean over the corpus the sum is one of shards.
            error = 1e-12 if name == RANDOM else 0
            assert other[name].values(metric) == pytest.approx(one[name].values(metric), rel=0, abs=error)


def test_chance_over_token_states_is_sampled(world, tmp_path, monkeypatch):
    """The table and the signature say so; --exact-chance of the same folder computes that row again, and no other."""
    index, queries, models, _ = world
    metrics = ("rouge-l", "bertscore", "radcliq")
    fair = {"fair": models["fair"]}
    run = partial(study.study, index, queries, fair, metrics=metrics)
    exact = run()  # a sample would be too small
    assert "sampled" not in exact[RANDOM].signature["averaged"]
    monkeypatch.setattr(sampled, "STRATA", 8)
    monkeypatch.setattr(study, "CHANCE_ERROR", 0.004)
    found = run(out=tmp_path / "study")
    entries = found[RANDOM].signature["averaged"]["sampled"]
    assert list(entries) == ["bertscore", "radcliq"]
    assert found[RANDOM].table["rouge-l"].equals(exact[RANDOM].table["rouge-l"])
    for metric, entry in entries.items():
        values, expected = (scores[RANDOM].table[metric].to_numpy() for scores in (found, exact))
        assert 0 < entry["standard_error"] <= 0.004
        assert 0 < abs(values.mean() - expected.mean()) <= 3 * entry["standard_error"]
        assert 1 < entry["rows"] < index.n_reports
        assert entry["seed"] == 0
    table = compare_study(found, resamples=100)
    assert table.signature["sampled"] == {RANDOM: entries}
    shown = " ".join(table.text("md").split())
    error = f"{entries['bertscore']['standard_error']:.1g}"
    assert f"under bertscore an estimate from {entries['bertscore']['rows']} of them for each test report" in shown
    assert f"(standard error of the average {error}, seed 0)" in shown
    steps = []
    monkeypatch.setattr(study, "score_rows", None)  # rows of the models and the oracles are there
    again = run(out=tmp_path / "study", exact_chance=True, progress=lambda name, *_: steps.append(name))
    assert {name for name in steps if "random" in name} >= {RANDOM, f"{RANDOM}: bertscore"}
    assert again[RANDOM].table.equals(exact[RANDOM].table)
    assert "sampled" not in again[RANDOM].signature["averaged"]


def test_a_composite_of_a_sampled_mean_has_the_error_of_its_term(world, monkeypatch):
    """BERTScore is sampled until the composite, in which a unit of it weighs more, is known well enough too."""
    index, queries, _, _ = world
    monkeypatch.setattr(sampled, "STRATA", 8)
    monkeypatch.setattr(study, "CHANCE_ERROR", 0.0015)

    def of_chance(*metrics):
        return study.study(index, queries, metrics=metrics)[RANDOM].signature["averaged"]["sampled"]

    alone, entries = of_chance("bertscore"), of_chance("radgraph", "chexbert", "bertscore", "radcliq")
    term = get_metric("radcliq").terms["bertscore"]
    slope = abs(term.weight / term.scale)
    assert slope > 1.5
    assert entries["radcliq"]["standard_error"] == pytest.approx(slope * entries["bertscore"]["standard_error"])
    assert entries["radcliq"]["standard_error"] <= 0.0015
    assert entries["bertscore"]["rows"] > 1.3 * alone["bertscore"]["rows"]


def test_composite_of_other_rows_is_described_by_itself(world, tmp_path):
    """A row that lacks a graph takes part in BLEU's mean and not in the composite's."""
    _, queries, _, paths = world
    graphs = json.loads(paths["train_graphs"].read_text())
    some = dict(list(graphs.items())[: len(graphs) // 2])
    (tmp_path / "graphs.json").write_text(json.dumps(some))
    index = build_index(
        mo.reports(paths["train"], radgraph=tmp_path / "graphs.json"), tmp_path / "I", metrics=["radcliq:preprint"]
    )
    found = study.study(index, queries, metrics=("bleu", "radgraph", "radcliq:preprint"))
    mean = expectation(index, queries, "radcliq:preprint").table["mean"]
    assert found[RANDOM].table["radcliq:preprint"].to_pylist() == mean.to_pylist()


def test_a_composite_of_means_is_done_at_the_end(world):
    """Of the means of its parts it is made without a step of its own."""
    index, queries, _, _ = world
    steps = []
    found = study.study(
        index, queries, metrics=("bleu", "radgraph", "radcliq:preprint"), progress=lambda *s: steps.append(s)
    )
    assert steps[-1] == (RANDOM, steps[-1][2], steps[-1][2])
    assert f"{RANDOM}: radcliq:preprint" not in {name for name, *_ in steps}
    assert len(found[RANDOM].table["radcliq:preprint"]) == len(queries.ids)


def test_files_of_a_study(systems, tmp_path):
    out = tmp_path / "study"
    write_study(systems, compare_study(systems), out)
    names = {path.name for path in out.iterdir()}
    assert {"table.md", "table.tex", "table.csv", "strong.parquet", "random-expected.parquet"} <= names
    assert not out.with_name("study.unfinished").exists()
    again = read_scores(out / "radcliq-oracle.parquet")
    assert again.table.equals(systems["radcliq oracle"].table)
    assert again.signature == systems["radcliq oracle"].signature
    assert compare_study(out).records() == compare_study(systems).records()  # the folder stands for its rows
    with pytest.raises(InputError, match=r"^compare_study: systems must be the folder of a study; got "):
        compare_study(tmp_path)
    with pytest.raises(
        InputError, match=r"^write_study: out must be a new folder; got .*study, which exists\. Remove it or"
    ):
        write_study(systems, compare_study(systems), out)


def fails(match, world, models, **options):
    with pytest.raises(InputError, match=match) as caught:
        study.study(world[0], world[1], models, **options)
    assert "\n" not in str(caught.value)


def test_columns_of_a_model_are_named_by_the_model(world, tmp_path, oracle, named):
    index, queries, _, paths = world
    file = tmp_path / "m.csv"
    rows = [f'{study},"{text}"\n' for study, text in zip(queries.ids, queries.texts, strict=True)]
    file.write_text("Fall,Befund\n" + "".join(reversed(rows)), encoding="utf-8")
    asked = ["study", index.folder, paths["test"], "-m", "bleu", "--format", "jsonl"]
    code, _, err = oracle(*asked, file)
    assert code == 2
    step = f"oracle reports NAME {file} --id-column NAME --text-column NAME; columns: 'Fall', 'Befund'."
    assert f"is clearly the predictions. Say how it is read: {step}" in err
    code, _, err = oracle(*asked, named("M", file, text_column="Befund"))
    assert code == 2
    assert f"Say how it is read: oracle reports NAME {file} --id-column NAME --text-column Befund; columns: " in err
    assert "If none of them has ids, pass --ids FILE by oracle reports NAME FILE with one id" in err
    code, out, err = oracle(*asked, named("M", file, text_column="Befund", id_column="Fall"))
    assert code == 0, err
    means = [record["mean"] for record in map(json.loads, out.splitlines()) if record.get("system") == "M"]
    assert means == [pytest.approx(1, abs=1e-9)]


def test_a_file_in_an_order_needs_the_ids_of_its_split(world, tmp_path, oracle):
    index, queries, _, paths = world
    items = [{"id": study, "report": "x"} for study in queries.ids]
    other = [{"id": "other", "report": "x"}]
    (tmp_path / "annotation.json").write_text(json.dumps({"val": items, "test": other}))
    (tmp_path / "res.csv").write_text("".join(f'"{text}"\n' for text in queries.texts))
    given = ["study", index.folder, paths["test"], f"R2Gen={tmp_path / 'res.csv'}", "-m", "bleu"]
    code, _, err = oracle(*given)
    assert code == 2
    assert "has no ids (CSV of one column without header)" in err
    assert "Pass --ids FILE by oracle reports NAME FILE with one id per row, in the same order." in err
    match = r".* has 40 predictions \(CSV .*\), and .* has 1 ids\. Pass"
    fails(
        match,
        world,
        {"m": mo.reports(tmp_path / "res.csv", mo.Read(ids=tmp_path / "annotation.json"))},
        metrics=("bleu",),
    )
    written = mo.reports(tmp_path / "res.csv", mo.Read(ids=tmp_path / "annotation.json", split="val"))
    assert written.read(predictions=True).ids == list(queries.ids)
    found = score(
        mo.reports(tmp_path / "annotation.json", mo.Read(split="val")),
        written,
        ["bleu"],
    )
    assert found.table["query_id"].to_pylist() == list(queries.ids)


def test_models_that_cannot_be(world, tmp_path):
    short = tmp_path / "short.csv"
    short.write_text("study_id,report\n50000300,No effusion.\n")
    match = (
        r"^study: model 'short' has no report for 39 of 40 test reports \('50000301', "
        r"'50000302', '50000303'\)\. Complete its file, or pass `inner=True` to leave these reports out\.$"
    )
    fails(match, world, {"short": mo.reports(short)}, metrics=("bleu",))
    match = r"^study: models must have names that no other row has; got 'identity'\. Choose another name\.$"
    fails(match, world, {"identity": mo.reports(short)}, metrics=("bleu",))
    match = (
        r"^study: models must have names that give different file names; got 'a b', whose file name 'a-b' is empty or "
        r"taken\. Choose another name\.$"
    )
    fails(match, world, {"a b": mo.reports(short), "a-b": mo.reports(short)}, metrics=("bleu",))


def test_models_without_a_report_in_common(world, tmp_path):
    models = {}
    for name in ("50000300", "50000301"):
        path = tmp_path / f"{name}.csv"
        path.write_text(f"study_id,report\n{name},No effusion.\n")
        models[f"m{name}"] = mo.reports(path)
    match = r"^study: no test report is predicted by every model; there are 40\. Leave a model out\.$"
    with pytest.warns(UserWarning, match=r"^left out of model 'm5000030[01]': 39 without a prediction$"):
        fails(match, world, models, metrics=("bleu",), inner=True)


def test_metrics_without_a_report_in_common(world, tmp_path):
    _, queries, _, paths = world
    graphs = json.loads(paths["train_graphs"].read_text())
    (tmp_path / "graphs.json").write_text(json.dumps(dict(list(graphs.items())[:100])))
    with np.load(paths["train_embeddings"]) as arrays:
        np.savez(tmp_path / "some.npz", ids=arrays["ids"][100:], embeddings=arrays["embeddings"][100:])
    files = {"radgraph": tmp_path / "graphs.json", "chexbert": tmp_path / "some.npz"}
    index = build_index(mo.reports(paths["train"], **files), tmp_path / "I", metrics=["radgraph", "chexbert"])
    match = r"^study: the index has no report that every metric can score\. Name fewer metrics with `metrics`\.$"
    with pytest.raises(InputError, match=match):
        study.study(index, queries, metrics=("radgraph", "chexbert"))


def test_command(world, oracle, named, tmp_path):
    index, _, _, paths = world
    sets = [named(name, paths[name], radgraph=paths[f"{name}_graphs"]) for name in ("test", "fair", "weak")]
    given, models = [index.folder, sets[0], "--metrics", "bleu,radgraph"], sets[1:]
    place = tmp_path / "study"
    code, out, err = oracle("study", *given, *models, "--threads", 1, "--seed", 3, "--out", place)
    assert code == 0, err
    assert err.splitlines()[-1] == (
        f"{place}: 7 systems, 40 studies: bleu-2, radgraph; the table is {place / 'table.md'}, and table.tex, "
        "table.csv beside it"
    )
    with (place / "table.csv").open(encoding="utf-8") as file:
        rows = {(row["system"], row["versus"], row["metric"]): row for row in csv.DictReader(file)}
    shown = out.splitlines()
    assert max(map(len, shown)) <= 80
    for system in ("fair", "weak", "bleu-2 oracle", "most frequent"):
        cells = [f"{float(rows[system, '', metric]['mean']):.3f}" for metric in ("bleu-2", "radgraph")]
        assert [system, *cells] in [[one.strip() for one in line.rsplit(maxsplit=2)] for line in shown]
    assert rows["fair", "weak", "bleu-2"]["p_value"]  # every two models are compared
    assert "Paired differences on the same studies" in out
    assert json.loads((place / "table.csv.signature.json").read_text())["interval"]["seed"] == 3
    assert "Bold: best average of the systems that are no oracle and no baseline." in " ".join(out.split())
    code, again, err = oracle("table", place, "--seed", 3, "--without", "identity", "--format", "tex")
    assert (code, err) == (0, "")
    assert again.count(r"\begin{tabular}") == 1
    assert "Identity" not in again
    # But for the row it is the table in the folder.
    kept = [line for line in (place / "table.tex").read_text().splitlines() if not line.startswith(("Identity", "%"))]
    assert {line for line in again.splitlines() if not line.startswith("%")} <= {*kept}
    for further in (["--random", "fair"], ["--paired", "fair,weak"], ["--foreign", "fair=zz.csv"]):
        code, _, err = oracle("table", place, *further)
        assert code == 2
        assert "must be left out with the folder of a study" in err
    assert oracle("study", *given, "-m", "bleu", "--quiet", "--out", tmp_path / "quiet")[1] == ""
    code, out, err = oracle("study", *given, "--interval", "percentile", "--out", tmp_path / "alone")
    assert code == 0, err
    assert json.loads((tmp_path / "alone/table.csv.signature.json").read_text())["interval"]["method"] == "percentile"
    assert "Bold" not in out  # oracles and baselines alone
    with (tmp_path / "alone/table.csv").open(encoding="utf-8") as file:
        assert {row["best"] for row in csv.DictReader(file)} == {"false"}
    code, out, err = oracle("study", *given)
    records = [json.loads(line) for line in out.splitlines()]
    assert code == 0
    assert {record.get("system") for record in records} >= {"bleu-2 oracle", RANDOM}
    code, _, err = oracle("study", *given, "=fair")
    assert code == 2
    assert err == "error: study: models must be FILE or NAME=FILE; got '=fair'. Write both parts.\n"
    code, _, err = oracle("study", *given, "fair", "fair")
    assert code == 2
    assert err == "error: study: two files have the name 'fair'. Write NAME=FILE with another name.\n"
    code, _, err = oracle("study", *given, "--out", tmp_path / "no" / "study")
    assert code == 2
    assert err.startswith("error: study: --out must be in an existing folder; got ")


# Kept steps


def test_oracle_reports_and_checksums_are_in_the_folder(world, tmp_path):
    index, queries, models, _ = world
    out = tmp_path / "study"
    systems = study.study(index, queries, {"fair": models["fair"]}, metrics=("bleu", "radgraph"), out=out)
    assert not out.exists()
    write_study(systems, compare_study(systems), out)
    names = ["fair", "most-frequent", "identity", "random-expected"]
    names += [f"{metric}-oracle{of}" for metric in ("bleu-2", "radgraph") for of in ("", "-reports")]
    assert {path.name for path in out.glob("*.parquet")} == {f"{name}.parquet" for name in names}
    assert not [*tmp_path.glob("study.*")]
    for metric in ("bleu-2", "radgraph"):
        reports = read_results(out / f"{metric}-oracle-reports.parquet")
        assert reports.table.equals(retrieve(index, queries, metric).table)
        assert verify(index, reports, queries)["queries"] == 20
        assert read_scores(out / f"{metric}-oracle.parquet").table.equals(systems[f"{metric} oracle"].table)
    kept = checksum.read_sealed(out / STEPS, "")
    tables = [f"table.{ending}" for ending in ("md", "tex", "csv", "csv.signature.json", "png")]
    assert kept.keys() == {f"{name}.parquet" for name in names} | {*tables}
    assert kept.keys() == {path.name for path in out.iterdir()} - {STEPS}
    for name, entry in kept.items():
        assert entry["sha256"] == sha256((out / name).read_bytes()).hexdigest()


def test_finished_steps_are_not_made_again(world, tmp_path, monkeypatch):
    index, queries, models, _ = world
    out = tmp_path / "study"
    made = []
    score_rows = study.score_rows

    def counted(*given, system, **options):
        made.append(system)
        return score_rows(*given, system=system, **options)

    monkeypatch.setattr(study, "score_rows", counted)

    def run(models, metrics=("bleu", "rouge-l")):
        made.clear()
        found = study.study(index, queries, models, metrics=metrics, out=out)
        return found, list(made)

    some = {name: models[name] for name in ("strong", "weak")}
    first, steps = run(some)
    assert steps == ["strong", "weak", "bleu-2 oracle", "rouge-l oracle", MOST_FREQUENT]
    again, steps = run(some)
    assert steps == []
    assert {name: one.table for name, one in again.items()} == {name: one.table for name, one in first.items()}

    folder = out.with_name("study.unfinished")
    content = bytearray((folder / "weak.parquet").read_bytes())
    content[len(content) // 2] ^= 1
    (folder / "weak.parquet").write_bytes(content)  # as a power cut may leave it
    again, steps = run(some)
    assert steps == ["weak"]
    assert again["weak"].table == first["weak"].table
    assert run({"strong": models["strong"]})[1] == []
    assert not (folder / "weak.parquet").exists()
    assert run({"strong": models["fair"]})[1] == ["strong"]
    assert len(run({"strong": models["fair"]}, ("bleu",))[1]) == 3
    write_study(again, compare_study(again), out)


def test_the_same_texts_under_other_ids_are_scored_again(world, tmp_path):
    """A study that goes on finds the file as before but for the ids, which two reports have exchanged."""
    index, queries, models, _ = world
    given = models["fair"].read()
    ids = [given.ids[1], given.ids[0], *given.ids[2:]]
    found = []
    for of_file in (given.ids, ids):
        path = write(tmp_path / "fair.csv", zip(of_file, given.texts, strict=True))
        made = study.study(index, queries, {"fair": mo.reports(path)}, metrics=["rouge-l"], out=tmp_path / "study")
        found.append(made["fair"].values("rouge-l"))
    alone = study.study(index, queries, {"fair": mo.reports(path)}, metrics=["rouge-l"])["fair"].values("rouge-l")
    assert found[0].tolist() != found[1].tolist() == alone.tolist()


def test_a_folder_of_something_else_or_in_use(world, tmp_path):
    out = tmp_path / "study"
    folder = out.with_name("study.unfinished")
    folder.mkdir()
    (folder / "mine.txt").write_text("mine")
    match = (
        r"^study: .*study\.unfinished was not left by an earlier run of `mo\.study`: it holds mine\.txt\. "
        r"Move it, or name another `out`\.$"
    )
    fails(match, world, {}, metrics=("bleu",), out=out)
    assert (folder / "mine.txt").read_text() == "mine"
    (folder / "mine.txt").unlink()
    with study_folder.study_job(out):
        match = r"^study: another run of `mo\.study` is working in .*study\.unfinished\. Wait for it to end\.$"
        fails(match, world, {}, metrics=("bleu",), out=out)


def contents(folder):
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.mark.parametrize(
    "name", ["thesis.txt", "thesis/chapter.txt", "fair.parquet", "table.md", ".thesis.txt.1.tmp", STEPS]
)
def test_a_study_deletes_nothing_that_it_did_not_write(world, tmp_path, name):
    """Beside the files of a study, or beside its lock alone: it stops, and all is as before."""
    index, queries, models, _ = world
    for kept in (False, True):
        out = tmp_path / f"study-{kept}"
        folder = out.with_name(f"{out.name}.unfinished")
        if kept:
            systems = study.study(index, queries, {"weak": models["weak"]}, metrics=("bleu",), out=out)
        else:
            folder.mkdir()
            (folder / ".lock").touch()
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text("precious")
        before = contents(folder)
        match = (
            r"^.*unfinished was not left by an earlier run of `mo\.study`: it(?:s| holds) \.?"
            r"(thesis|fair|table|steps).*\. Move it, or name another `out`\.$"
        )
        fails(match, world, {"fair": models["fair"]}, metrics=("bleu",), out=out)
        assert contents(folder) == before
        if kept:
            with pytest.raises(InputError, match=match):
                write_study(systems, compare_study(systems), out)
            assert contents(folder) == before


def test_a_record_of_a_study_names_nothing_outside_of_its_folder(world, tmp_path):
    folder = tmp_path / "study.unfinished"
    folder.mkdir()
    (folder / ".lock").touch()
    (tmp_path / "thesis.txt").write_text("precious")
    (folder / STEPS).write_text(json.dumps({"../thesis.txt": {"made_of": "", "sha256": ""}}))
    fails(rf"its {STEPS} cannot be read\.", world, {}, metrics=("bleu",), out=tmp_path / "study")
    assert (tmp_path / "thesis.txt").read_text() == "precious"


KILLED = """
import os, signal, sys, threading
from pathlib import Path
import metric_oracle as mo
from metric_oracle.tables.study import compare_study, study
from metric_oracle.tables.study_folder import write_study
index, test, graphs, model, model_graphs, out, seconds = sys.argv[1:]
opened, queries = mo.open_index(index), mo.reports(test, radgraph=graphs).load()
if float(seconds):
    threading.Timer(float(seconds), os.kill, (os.getpid(), signal.SIGKILL)).start()
models = {"fair": mo.reports(Path(model), radgraph=Path(model_graphs))}
systems = study(opened, queries, models, metrics=("bleu", "radgraph"), out=Path(out))
write_study(systems, compare_study(systems), Path(out))
os._exit(0)
"""


def test_a_study_that_is_killed_goes_on(world, tmp_path):
    """After kills at random moments everything in the folder is as an unbroken run leaves it."""
    index, _, _, paths = world
    given = [index.folder, paths["test"], paths["test_graphs"], paths["fair"], paths["fair_graphs"]]

    def run(name, seconds):
        command = [sys.executable, "-c", KILLED, *map(str, given), str(tmp_path / name), str(seconds)]
        return subprocess.run(command, check=False, capture_output=True, text=True).returncode

    assert run("whole", 0) == 0
    rng = random.Random(5)
    codes = []
    while 0 not in codes:
        codes.append(run("broken", rng.uniform(0.01, 1.0) * (len(codes) + 1) if len(codes) < 5 else 0))
    assert set(codes[:-1]) <= {-signal.SIGKILL}
    assert not [*tmp_path.glob("broken.*"), *(tmp_path / "broken").glob("*.predictions*")]
    files = {path.name for path in (tmp_path / "whole").iterdir()}
    assert {path.name for path in (tmp_path / "broken").iterdir()} == files
    for name in files - {"table.png"}:
        assert (tmp_path / "broken" / name).read_bytes() == (tmp_path / "whole" / name).read_bytes(), name


# What score takes


def test_default_metrics_are_those_that_everything_allows(world):
    """The index holds CheXbert, BERTScore and all; what the tests or a model lack is not asked for."""
    index, queries, models, paths = world
    bare = mo.reports(paths["test"]).load()
    found = study.study(index, bare, {"fair": mo.reports(paths["fair"])})
    assert found["fair"].metrics == ["bleu-2", "rouge-l", "bertscore"]
    some = {"fair": mo.reports(paths["fair"], radgraph=paths["fair_graphs"]), "weak": models["weak"]}
    found = study.study(index, queries, some)
    assert found["fair"].metrics == ["bleu-2", "rouge-l", "radgraph", "bertscore"]


def test_inner_and_order_and_labels(world, tmp_path):
    _, _, _, paths = world
    given = {"chexbert_labels": paths["train_labels"], "uncertain": "positive"}
    index = build_index(mo.reports(paths["train"], **given), tmp_path / "I")
    queries = mo.reports(paths["test"], chexbert_labels=paths["test_labels"], uncertain="positive").load()
    texts = dict(zip(queries.ids, queries.texts, strict=True))
    short = write(tmp_path / "short.csv", {study: texts[study] for study in queries.ids[5:]})
    lines = tmp_path / "lines.txt"
    lines.write_text("\n".join(" ".join(text.split()) for text in queries.texts) + "\n")
    labels = {"chexbert_labels": paths["test_labels"]}
    models = {"short": mo.reports(short, **labels), "lines": mo.reports(lines, mo.Read(ids=paths["test"]), **labels)}
    metrics = ("bleu", "chexbert:labels", "crg")
    with pytest.warns(UserWarning, match=r"^left out of model 'short': 5 without a prediction$"):
        found = study.study(index, queries, models, metrics=metrics, inner=True)
    assert found["short"].table["query_id"].to_pylist() == queries.ids[5:]
    assert found["short"].table["chexbert:labels"].to_pylist() == found[IDENTITY].table["chexbert:labels"].to_pylist()
    for name in ("chexbert:labels", "crg", "crg.tp"):
        assert found["lines"].table[name].to_pylist() == found["short"].table[name].to_pylist(), name
    match = r"^study: model 'short' has no report for 5 of 40 test reports"
    with pytest.raises(InputError, match=match):
        study.study(index, queries, models, metrics=metrics)


def test_an_index_may_stand_for_predictions(world, systems, tmp_path):
    index, queries, _, paths = world
    built = build_index(
        mo.reports(paths["fair"], radgraph=paths["fair_graphs"]), tmp_path / "fair", metrics=["bleu", "radgraph"]
    )
    found = study.study(index, queries, {"fair": mo.reports(built.folder)})
    assert found["fair"].metrics == ["bleu-2", "radgraph"]
    for metric in found["fair"].metrics:
        assert found["fair"].table[metric].to_pylist() == systems["fair"].table[metric].to_pylist()


def test_a_degenerate_cell_is_marked_and_the_table_goes_on(world, tmp_path):
    """A model that says the same of everyone, so that no F1 differs from 0; and one that copies the tests."""
    index, queries, _, paths = world
    graphs = {study: {"text": "stable", "entities": {}} for study in queries.ids}
    (tmp_path / "graphs.json").write_text(json.dumps(graphs))
    same = write(tmp_path / "same.csv", dict.fromkeys(queries.ids, "stable"))
    copy = write(tmp_path / "copy.csv", dict(zip(queries.ids, queries.texts, strict=True)))
    models = {
        "same": mo.reports(same, radgraph=tmp_path / "graphs.json"),
        "copy": mo.reports(copy, radgraph=paths["test_graphs"]),
    }
    table = compare_study(study.study(index, queries, models, metrics=("bleu", "rouge-l", "radgraph")))
    cell = table.cells["same", "radgraph"]
    assert (cell.mean, cell.interval.degenerate) == (0, True)
    assert table.cells["copy", "rouge-l"].interval.degenerate
    assert not table.cells["bleu-2 oracle", "rouge-l"].interval.degenerate
    assert len(table.cells) == 8 * 3


def test_results_and_baselines_go_into_a_table_as_they_are(world, tmp_path):
    index, queries, _, paths = world
    retrieve(index, queries, "bleu", k=3).write(tmp_path / "oracle.csv")
    baseline(index, queries, "random", "bleu").write(tmp_path / "random.jsonl")
    score(paths["test"], paths["fair"], ["bleu"]).write(tmp_path / "fair.parquet")
    rows = {name: tmp_path / f"{name}" for name in ("oracle.csv", "random.jsonl", "fair.parquet")}
    table = study.compare(rows, random="random.jsonl", oracles={"bleu": "oracle.csv"})
    assert table.cells["oracle.csv", "bleu-2"].share == pytest.approx(1)
    assert table.cells["random.jsonl", "bleu-2"].share == 0 < table.cells["fair.parquet", "bleu-2"].share


def test_an_index_without_a_metric_of_a_study(world, tmp_path):
    index = build_index(world[3]["test"], tmp_path / "I", metrics=["temporal"])
    match = (
        r"^study: index, test reports and models allow no metric of a study\. Build the "
        r"index for one of bleu-2, .*\.$"
    )
    with pytest.raises(InputError, match=match):
        study.study(index, world[1], {})


def test_a_model_file_that_cannot_be_read(tmp_path):
    match = r"^.*gone\.csv cannot be read \(No such file or directory\)\. Check the name of this file\.$"
    with pytest.raises(InputError, match=match):
        study_folder.checksum_of(tmp_path / "gone.csv")
