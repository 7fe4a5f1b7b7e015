"""`oracle score` from files to tables: the command that stands in for CXR-Report-Metric."""

import csv
import hashlib
import importlib.util
import json
import operator
import os
import pty
import re
import subprocess
import sys
from functools import reduce
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import parquet
from rich.console import Console

import metric_oracle as mo
from metric_oracle.corpora.reports import Reports
from metric_oracle.encoders.crepe import Crepe
from metric_oracle.findings.results import read_scores
from metric_oracle.findings.views import scores_table
from metric_oracle.kernels.sum.score import composite
from metric_oracle.metrics import METRICS
from metric_oracle.retrieval.building import build_index
from metric_oracle.scores.scoring import score
from support import SECRET, assert_refused, write
from support.crepe import write_tiny

COMMAND = str(Path(sys.executable).with_name("oracle"))
TESTS = Path(__file__).parent
TEXTS = {
    "50000001": "No acute process.", "50000002": "Edema of the left lung.", "50000003": "Large effusion, stable.",
    "50000004": "Heart size is normal.",
}  # fmt: skip
GENERATED = {
    "50000003": "Stable effusion.", "50000001": "No acute process.", "50000004": " ", "50000002": "Lungs are clear.",
}  # fmt: skip


@pytest.fixture
def fails(oracle):
    """Return a function that runs a command which must end in one error line and exit code 2; sources may be named."""

    def run(*arguments, match):
        assert_refused(oracle(*arguments), match, notes="(references|predictions|(test )?reports): ")

    return run


@pytest.fixture
def pair(tmp_path):
    """Return the two files that CXR-Report-Metric takes, in different orders."""
    return write(tmp_path / "test.csv", TEXTS), write(tmp_path / "generated.csv", GENERATED)


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    """Return an encoder, a RadGraph archive and a CheXbert checkpoint, all tiny."""
    torch = pytest.importorskip("torch")
    transformers = pytest.importorskip("transformers")

    def module(name):
        spec = importlib.util.spec_from_file_location(name, TESTS / f"encoders/{name}.py")
        loaded = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(loaded)
        return loaded

    folder = tmp_path_factory.mktemp("models")
    radgraph, chexbert = module("tiny_radgraph"), module("test_chexbert")
    home = radgraph.write_encoder(folder / "radgraph_encoder", "radgraph")
    archive = radgraph.write_archive(folder / "radgraph.tar.gz", radgraph.files_of("radgraph", home, str(home)))
    (folder / "chexbert").mkdir()
    bert, heads, *_ = chexbert.tiny_parts()
    checkpoint = chexbert.save(folder / "chexbert", chexbert.tensors_of(bert, heads))

    encoder = folder / "encoder"
    words = re.findall(r"[a-z]+|[.,]", " ".join([*TEXTS.values(), *GENERATED.values()]).lower())
    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *sorted(set(words))]
    encoder.mkdir()
    (encoder / "vocab.txt").write_text("\n".join(words) + "\n", encoding="utf-8")
    torch.manual_seed(1)
    config = transformers.BertConfig(
        vocab_size=len(words), hidden_size=16, num_hidden_layers=2, num_attention_heads=2, intermediate_size=24,
        max_position_embeddings=40, initializer_range=0.4,
    )  # fmt: skip
    transformers.BertModel(config).save_pretrained(encoder)
    transformers.BertTokenizerFast(str(encoder / "vocab.txt"), model_max_length=40).save_pretrained(encoder)
    return {"encoder": encoder, "layer": 2, "radgraph": archive, "chexbert": checkpoint}


@pytest.fixture
def asked(pair, models, named):
    """Return the command that scores the pair with the models, which run on both sides."""
    named("tiny", models["encoder"], kind="encoders", layer=2)
    named("humans", pair[0], radgraph=models["radgraph"], chexbert=models["chexbert"])
    return ["score", "humans", pair[1], "--encoder", "tiny"]


# From two CSV files to RadCliQ


def test_from_two_csv_files_to_radcliq(oracle, asked, tmp_path):
    out = tmp_path / "report_scores.csv"
    code, printed, err = oracle(*asked, "--out", out, "--published-names")
    assert (code, printed) == (0, "")
    assert err.splitlines()[-1].startswith(f"{out}: 4 pairs: bleu-2 0.")
    with out.open(newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    names = ["study_id", "report", "bleu_score", "bertscore", "semb_score", "radgraph_combined", "RadCliQ-v0"]
    assert list(rows[0])[:8] == [*names, "RadCliQ-v1"]
    assert {row["study_id"]: row["report"] for row in rows} == GENERATED
    assert [row["study_id"] for row in rows] == list(TEXTS)
    columns = {"radgraph": "radgraph_combined", "chexbert": "semb_score", "bleu-2": "bleu_score"}
    for metric, name in (("radcliq:v0", "RadCliQ-v0"), ("radcliq", "RadCliQ-v1")):
        terms, intercept = METRICS[metric].terms, METRICS[metric].intercept
        for row in rows:
            parts = [float(row[columns.get(part, part)]) for part in terms]
            assert float(row[name]) == composite(parts, terms.values(), intercept)
    assert [float(row["bleu_score"]) for row in rows][::3] == [1.0, 0.0]
    assert len({row["RadCliQ-v1"] for row in rows}) == 4

    signature = json.loads((tmp_path / "report_scores.csv.signature.json").read_text())
    assert len(signature.pop("signature_sha256")) == 64
    assert signature.pop("table_sha256") == hashlib.sha256(out.read_bytes()).hexdigest()
    assert signature["system"] == "generated"
    made = signature["metrics"]["radcliq"]["representation"]
    assert made["radgraph"]["encoder"]["model"]
    assert made["chexbert"]["encoder"]["model"] == "chexbert"

    code, printed, _ = oracle(*asked)
    records = [json.loads(line) for line in printed.splitlines()]
    assert [record["radcliq"] for record in records] == [float(row["RadCliQ-v1"]) for row in rows]
    assert "prediction" not in records[0]


def test_the_same_from_files_of_both_sides(oracle, named, asked, pair, models, tmp_path):
    """Graphs by study id and embeddings by id, as other tools leave them, give what the models give."""
    from metric_oracle.encoders.chexbert import CheXbert
    from metric_oracle.encoders.radgraph import RadGraph

    for name, file, reports in zip("tg", pair, (TEXTS, GENERATED), strict=True):
        graphs = RadGraph(models["radgraph"]).annotate(list(reports.values()))
        path = tmp_path / f"graphs-{name}.json"
        path.write_text(json.dumps({study: graphs[str(i)] for i, study in enumerate(reports) if reports[study] != " "}))
        embeddings = CheXbert(models["chexbert"]).encode(list(reports.values()))[0]
        vectors, ids = tmp_path / f"e-{name}.npy", tmp_path / f"ids-{name}.txt"
        np.save(vectors, embeddings)
        ids.write_text("\n".join(reports) + "\n")
        named(name, file, radgraph=path, chexbert=vectors, chexbert_ids=ids)
    code, printed, _ = oracle("score", "t", "g", "--metrics", "radcliq, radcliq:v0", "--encoder", "tiny")
    assert code == 0
    from_files = [json.loads(line) for line in printed.splitlines()]
    printed = oracle(*asked, "--metrics", "radcliq,radcliq:v0")[1]
    from_models = [json.loads(line) for line in printed.splitlines()]
    for got, expected in zip(from_files, from_models, strict=True):
        assert got.pop("query_id") == expected.pop("query_id")
        assert got == pytest.approx(expected, rel=1e-6)  # other batches, other rounding inside the models


def test_labels_from_the_checkpoint(oracle, named, pair, models):
    named("humans", pair[0], chexbert=models["chexbert"], uncertain="negative")
    code, printed, _ = oracle("score", "humans", pair[1], "--metrics", "chexbert:labels")
    assert code == 0
    assert json.loads(printed.splitlines()[0])["chexbert:labels"] == 1.0


# What comes out


def test_bleu_needs_no_model(oracle, pair):
    code, out, err = oracle("score", *pair)
    records = [json.loads(line) for line in out.splitlines()]
    assert code == 0
    assert [name for name in records[0] if "." not in name] == ["query_id", "bleu-2", "bleu-4", "rouge-l"]
    assert [record["query_id"] for record in records] == list(TEXTS)
    assert [record["rouge-l"] for record in records][::3] == [1.0, 0.0]
    assert err.splitlines() == [
        "references: CSV, id study_id, column report, 4 of 4 rows",
        "predictions: CSV, column report, id study_id, 4 of 4 rows; 1 empty, scored as such",
        "4 pairs: bleu-2 0.2965, bleu-4 0.2864, rouge-l 0.3500",  # beside redirected records, which have no mean
    ]
    assert "4 pairs" not in oracle("score", *pair, "--format", "csv")[2]


@pytest.mark.parametrize("ending", ["parquet", "csv", "jsonl"])
def test_files_hold_what_a_pipe_gets(oracle, pair, tmp_path, ending):
    out = tmp_path / f"s.{ending}"
    lines = oracle("score", *pair, "--with-text")[1].splitlines()
    assert oracle("score", *pair, "--with-text", "--out", out)[:2] == (0, "")
    scores = read_scores(out)
    assert scores.table.to_pylist() == [json.loads(line) for line in lines]
    assert scores.table["prediction"].to_pylist() == [GENERATED[study] for study in TEXTS]


def run_on_a_terminal(command):
    """Run a command with stdout and stderr on a terminal and return what it shows."""
    main, end = pty.openpty()
    done = subprocess.Popen(command, stdin=end, stdout=end, stderr=end, env={**os.environ, "COLUMNS": "100"})
    os.close(end)
    shown = b""
    try:
        while part := os.read(main, 1 << 16):
            shown += part
    except OSError:
        pass
    os.close(main)
    assert done.wait() == 0
    return shown.decode()


def test_a_terminal_gets_the_means(pair, tmp_path):
    extra = write(tmp_path / "more.csv", {**GENERATED, "7": "x", "8": "y"})
    shown = run_on_a_terminal([COMMAND, "score", str(pair[0]), str(extra), "--inner"])
    assert re.search(r"bleu-2\s+4\s+4\s+0\.\d{4}\s+\[0\.\d{4} 0\.\d{4}\]\s+higher", shown)
    assert "left out: 2 without a reference" in shown
    assert re.search(
        r"too few pairs for these intervals: bleu-2 [34],.*; below 20 an interval is too short", " ".join(shown.split())
    )
    assert "more" in shown


def test_table_counts_pairs_that_could_not_be_scored(tmp_path):
    graph = {"text": "a", "entities": {"1": {"tokens": "a", "label": "OBS-DP", "relations": []}}}
    (tmp_path / "g.json").write_text(json.dumps({"x": graph}))
    sides = [mo.reports(Reports(["x", "y"], ["a", "a"], ""), radgraph=tmp_path / "g.json") for _ in range(2)]
    console = Console(width=100, record=True, file=open(os.devnull, "w"))  # noqa: SIM115
    console.print(scores_table(score(*sides, ["radgraph"], system="[red]m\x1b")))
    shown = console.export_text()
    console.file.close()
    assert re.search(r"radgraph\s+2\s+1\s+0\.5000\s+higher", shown)
    assert "[red]m\ufffd" in shown
    assert "pairs not scored lack a graph" in shown


def test_r2gen_and_images(oracle, named, tmp_path):
    items = [{"id": f"CXR{n}_IM-1", "report": f"report {n}", "image_path": []} for n in (3, 1)]
    (tmp_path / "annotation.json").write_text(json.dumps({"train": [{**items[0], "id": "t"}], "test": items}))
    (tmp_path / "res.csv").write_text("report 3\nother words\n")
    annotation = tmp_path / "annotation.json"
    named("R2Gen", tmp_path / "res.csv", ids=annotation)
    code, out, err = oracle("score", annotation, "R2Gen", "--split", "test")
    assert code == 0
    assert [json.loads(line)["rouge-l"] for line in out.splitlines()] == [1.0, 0.0]
    assert "predictions: CSV of one column without header, in the order of annotation.json, id id, 2 of 2 rows" in err

    (tmp_path / "m.csv").write_text("dicom_id,study_id,ViewPosition\nd1,1,LL\nd2,1,PA\n")
    (tmp_path / "p.csv").write_text("report,dicom_id\nx,d1\nb c,d2\n")
    references = write(tmp_path / "r.csv", {"1": "b c"})
    code, out, _ = oracle("score", references, named("images", tmp_path / "p.csv", metadata=tmp_path / "m.csv", seed=4))
    assert code == 0
    assert json.loads(out.splitlines()[0])["rouge-l"] == 1.0


def test_the_sections_table_of_mimic_cxr_and_a_models_images(oracle, named, tmp_path):
    """As the README has it: all studies on one side, the images of the test split on the other."""
    studies = ["50000001", "50000002", "50000003"]
    rows = [[f"s{study}", f"Imp {study}.", f"Find {study}.", "", ""] for study in studies]
    header = ("study", "impression", "findings", "last_paragraph", "comparison")
    references = write(tmp_path / "mimic_cxr_sectioned.csv", rows, header)
    images = [[f"d{study}{view}", study, view] for study in studies for view in ("PA", "LL")]
    metadata = write(tmp_path / "metadata.csv", images, ("dicom_id", "study_id", "ViewPosition"))
    splits = [[image, study, "1", "train" if study == "50000002" else "test"] for image, study, _ in images]
    split_file = write(tmp_path / "split.csv", splits, ("dicom_id", "study_id", "subject_id", "split"))
    written = [
        [f"Find {study}. Imp {study}." if view == "PA" else "x", i] for i, study, view in images if "2" not in study
    ]
    predictions = write(tmp_path / "test_reports.csv", written, ("report", "dicom_id"))
    named("model", predictions, metadata=metadata)
    said = {"section": "findings+impression"}
    named("humans", references, **said, split="test", split_file=split_file)
    code, out, err = oracle("score", "humans", "model")
    assert code == 0, err
    found = [json.loads(line) for line in out.splitlines()]
    assert [record["query_id"] for record in found] == ["50000001", "50000003"]
    assert [record["rouge-l"] for record in found] == [1.0, 1.0]
    assert "pass --section" not in err
    code, _, err = oracle("score", named("all", references, **said), "model")
    assert (code, "score: 3 references and 2 predictions must have the same ids" in err) == (2, True)


def test_after_impression_and_columns(oracle, named, tmp_path):
    (tmp_path / "p.json").write_text('{"1": {"model_prediction": "Findings: x. Impression: b c", "other": "b"}}')
    references = write(tmp_path / "r.csv", {"1": "b c"})
    for said, expected in (({"after_impression": True}, 1.0), ({"text_column": "other"}, 2 / 3)):
        code, out, _ = oracle("score", references, named("p", tmp_path / "p.json", **said))
        assert code == 0
        assert json.loads(out.splitlines()[0])["rouge-l"] == expected


def test_the_section_of_predictions_can_be_said(oracle, named, fails, tmp_path):
    references = tmp_path / "r.csv"
    references.write_text("study_id,impression\n1,b c\n")
    (tmp_path / "p.csv").write_text("study_id,findings\n1,b c\n")
    given = ["score", references, tmp_path / "p.csv"]
    fails(
        *given,
        match=r"score: .* Pass --section findings, or --section impression by oracle reports NAME FILE where that",
    )
    code, out, _ = oracle("score", references, named("p", tmp_path / "p.csv", section="impression"))
    assert (code, json.loads(out)["rouge-l"]) == (0, 1.0)


# Lines


def test_ids_that_differ(fails, oracle, pair, tmp_path):
    extra = write(tmp_path / "more.csv", {**GENERATED, "7": SECRET, "8": "y"})
    fails("score", pair[0], extra, match=(
        r"score: 4 references and 6 predictions must have the same ids; got 2 without a reference \('7', '8'\)\. Compl"
    ))  # fmt: skip
    code, _, err = oracle("score", pair[0], extra, "--inner")
    assert code == 0
    assert err.splitlines()[-2] == "left out: 2 without a reference"
    lacking = tmp_path / "missing.json"
    lacking.write_text(json.dumps({**GENERATED, "50000002": None}))
    fails(
        "score", pair[0], lacking, match=r"score: 4 references and 3 predictions .* 1 with a missing prediction \('5000"
    )


def test_an_empty_generated_report_counts_the_same_in_every_file(oracle, pair, tmp_path):
    found = {}
    for name in ("p.csv", "p.json", "p.parquet"):
        path = tmp_path / name
        reports = {**GENERATED, "50000002": ""}
        if name == "p.csv":  # as pandas writes it: the empty cell is not quoted
            cells = [f'"{text}"' if text else "" for text in reports.values()]
            lines = map(",".join, zip(reports, cells, strict=True))
            path.write_text("\n".join(["study_id,report", *lines]))
        elif name == "p.json":
            path.write_text(json.dumps(reports))
        else:
            parquet.write_table(pa.table({"study_id": list(reports), "report": list(reports.values())}), path)
        code, printed, _ = oracle("score", pair[0], path, "--metrics", "bleu")
        assert code == 0
        records = map(json.loads, printed.splitlines())
        found[name] = [record["bleu-2"] for record in records]
    assert found["p.csv"] == found["p.json"] == found["p.parquet"]
    assert found["p.csv"][list(TEXTS).index("50000002")] == 0.0


def test_where_scores_may_go(fails, pair, tmp_path):
    match = r"score: --published-names must be given with --out; got none\. Add"
    fails("score", *pair, "--published-names", match=match)
    fails("score", *pair, "--published-names", "--out", tmp_path / "s.parquet", match=(
        r"score: --out must end with \.csv; got .*s.parquet\. Name such a file\."
    ))  # fmt: skip
    fails(
        "score",
        *pair,
        "--out",
        tmp_path / "s.txt",
        match=r"score: --out must end with \.parquet, \.csv or \.jsonl; got",
    )
    fails(
        "score",
        *pair,
        "--out",
        pair[1],
        match=r"score: --out must be another file than the inputs; got .*generated.csv",
    )
    fails("score", *pair, "--out", tmp_path / "no/s.csv", match=r"score: --out must be in an existing folder; got")
    assert {path.name for path in tmp_path.iterdir()} == {"test.csv", "generated.csv"}


def test_files_that_lack(fails, named, pair, tmp_path):
    fails("score", tmp_path / "no.csv", pair[1], match=r"score: there is no file or folder .*no\.csv\. Check")
    fails("score", pair[0], tmp_path / "no.csv", match=r"score: there is no file .*no\.csv\. Check")
    fails(
        "score", *pair, "--metrics", "radcliq", match=r"score: graphs of both sides must be given for metric 'radcliq'"
    )
    graphs = tmp_path / "g.json"
    humans = named("humans", pair[0], radgraph=graphs)
    fails("score", humans, pair[1], match=r"score: graphs must be given for both sides; got none for the pre")


def test_help_teaches_by_example(oracle):
    code, out, _ = oracle("score", "--help")
    assert code == 0
    for example in ("oracle score radiologists.csv model.csv -m", "--published-names", "oracle score test strong -m"):
        assert example in " ".join(out.split())


# ---- CREPE: a model that reads both reports at once ------------------------------------------------------------------


@pytest.fixture(scope="module")
def crepe(tmp_path_factory):
    pytest.importorskip("torch")
    return write_tiny(tmp_path_factory.mktemp("model") / "crepe")


def test_crepe_is_a_column(oracle, corpus, crepe, tmp_path):
    out = tmp_path / "scores.parquet"
    args = (corpus["test"], corpus["test"], "--crepe", crepe)
    code, _, err = oracle("score", *args, "-m", "crepe,rouge-l", "--out", out)
    assert code == 0, err
    scores = read_scores(out)
    with corpus["test"].open(newline="") as file:
        texts = [row["report"] for row in csv.DictReader(file)]
    model = Crepe(crepe, device="cpu")
    counts, _ = model.count_errors([(text, text) for text in texts])
    assert scores.metrics == ["crepe", "rouge-l"]
    # Added up from nA to nF; `sum` of Python 3.12 and later rounds once, not after each term.
    assert scores.table["crepe"].to_pylist() == [reduce(operator.add, row) for row in counts.tolist()]
    assert [scores.table[f"crepe.n{name}"].to_pylist() for name in "ABCDEF"] == counts.T.tolist()
    how = scores.signature["metrics"]["crepe"]
    assert how["direction"] == "lower"
    assert how["representation"] == {"crepe": {"encoder": model.signature}}
    # With the checkpoint it is among the usual metrics, and without it not.
    code, shown, _ = oracle("score", *args, "--format", "csv")
    assert '"crepe"' in shown.partition("\n")[0].split(",")
    code, shown, _ = oracle("score", *args[:2], "--format", "csv")
    assert '"crepe"' not in shown.partition("\n")[0].split(",")


def test_crepe_wants_its_checkpoint(fails, corpus, crepe):
    both = (corpus["test"], corpus["test"])
    fails(
        "score", *both, "-m", "crepe", match=r"score: --crepe must be given for metric 'crepe'; got none\. Add --crepe"
    )
    fails("score", *both, "--crepe", crepe.parent / "none", match=r"score: there is no file ")


@pytest.fixture(scope="module")
def bleu_index(corpus, tmp_path_factory):
    """Return the folder of an index for BLEU."""
    return build_index(corpus["train"], tmp_path_factory.mktemp("index") / "INDEX", metrics="bleu").folder


@pytest.mark.parametrize(
    "command", ["retrieve", "baseline random", "baseline most-frequent", "expectation", "build-index", "study", "bench"]
)
def test_crepe_allows_no_exact_search(fails, corpus, bleu_index, command):
    """Every command that searches says so in one line."""
    index = bleu_index
    sources = [corpus["train"], "--out", index.parent / "new"] if command == "build-index" else [index, corpus["test"]]
    words = ["baseline", "expectation"] if command == "expectation" else command.split()
    fails(*words, *sources, "-m", "crepe", match=(
        r"[\w -]+: --metric must be one with an exact search; got 'crepe', whose model reads reference and candidate "
        r"at once\. Use oracle score, or oracle rerank for the best of a pool\.$"
    ))  # fmt: skip
