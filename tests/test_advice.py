"""What a message advises can be done where it appears: its options are the command's, its arguments the function's."""

import inspect
import json
import re
import warnings

import pytest
import typer

import metric_oracle as mo
from metric_oracle import cli
from metric_oracle.base.declarations import declarations
from support import write

IDS = [f"a{i}" for i in range(6)]
TEXTS = [f"Finding {i} of the left lung is stable." for i in range(6)]
ROWS = [(study, text, "x") for study, text in zip(IDS, TEXTS, strict=True)]
LABELS = [(study, i % 2, 1) for i, study in enumerate(IDS)]


def bad_files(folder):
    """Write files that cannot be read without an option, or not at all, and yield their paths."""
    yield write(folder / "unknown.csv", ROWS, ("nr", "typed", "other"))
    yield write(folder / "ids.csv", ROWS, ("uid", "report", "study"))
    yield write(folder / "texts.csv", ROWS, ("study_id", "report", "text"))
    yield write(folder / "no_ids.csv", [row[1:] for row in ROWS], ("prediction", "reference"))
    yield write(folder / "twice.csv", [ROWS[0], ("a0", *ROWS[1][1:])], ("study_id", "report", "other"))
    yield write(folder / "images.csv", [("i1", "One text."), ("i1", "Another.")], ("dicom_id", "report"))
    yield write(folder / "findings.csv", [row[:2] for row in ROWS], ("study_id", "findings"))
    yield write(folder / "blank.csv", [(study, "") for study in IDS], ("study_id", "report"))
    yield write(folder / "header.csv", [(text,) for text in TEXTS[1:]], (TEXTS[0],))
    for name, content in {
        "lines.txt": "\n".join(TEXTS).encode(),
        "numbers.json": json.dumps({study: {"report": 5} for study in IDS}).encode(),
        "graphs.json": json.dumps({study: {"text": "a", "entities": {}} for study in IDS}).encode(),
        "split.json": json.dumps({"test": [["a"]]}).encode(),
        "samples.jsonl": b'{"drawn": ["a", "b"]}\n',
        "pairs.jsonl": "\n".join(json.dumps({"prediction": t, "reference": t}) for t in TEXTS).encode(),
        "bytes.csv": b"study_id,report\na0,\x81\x8d\n",
        "marked.csv": "study_id,report\na0,é\n".encode() + b"a1,\xe9\n",
        "ragged.csv": b"study_id,report\na0,a,b\n",
        "open.csv": b'study_id,report\na0,"a\n',
        "empty.csv": b"",
        "file.docx": b"x",
    }.items():
        (folder / name).write_bytes(content)
        yield folder / name
    yield folder / "absent.csv"


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """Return a folder with good files, an index, results of a search, and a folder of bad files."""
    folder = tmp_path_factory.mktemp("advice")
    write(folder / "good.csv", [row[:2] for row in ROWS], ("study_id", "report"))
    write(folder / "labels.csv", LABELS, ("study_id", "Edema", "Fracture"))
    (folder / "samples.json").write_text(json.dumps({study: [text, "Clear."] for study, text, _ in ROWS}))
    index = mo.build_index(folder / "good.csv", folder / "I", metrics="rouge-l,bleu-2")
    mo.retrieve(index, folder / "good.csv", "rouge-l").write(folder / "r.csv")
    mo.score(folder / "good.csv", folder / "good.csv", "rouge-l").write(folder / "s.csv")
    return folder


@pytest.fixture(scope="module")
def bad(tmp_path_factory):
    return [*bad_files(tmp_path_factory.mktemp("bad"))]


# Every file that a command reads, one at a time, in the place of BAD.
DRIVEN = """
build-index BAD --out NEW
build-index good.csv --split train --split-file BAD --out NEW
build-index good.csv --radgraph BAD --out NEW
build-index good.csv --labels BAD --out NEW
build-index good.csv --shard-rows 2 --out NEW --entities BAD
build-index BAD --shard-rows 2 --out NEW
retrieve I BAD -m rouge-l
retrieve BAD good.csv -m rouge-l
reports a BAD
reports a good.csv --chexbert BAD
reports a good.csv --radgraph BAD
reports a good.csv --labels BAD --uncertain blank
reports a good.csv --split train --split-file BAD
reports a good.csv --ids BAD
reports a BAD --ids BAD
reports a good.csv --metadata BAD
retrieve I good.csv -m composite --weights BAD
verify I r.csv BAD
verify I BAD good.csv
baseline random I BAD -m rouge-l
baseline nearest I good.csv -m rouge-l --corpus-vectors BAD --query-vectors BAD
score BAD good.csv -m rouge-l
score good.csv BAD -m rouge-l
score BAD BAD -m rouge-l
score good.csv good.csv -m rouge-l --index BAD
study I BAD -m rouge-l
study I good.csv A=BAD -m rouge-l
study I good.csv --scores A=BAD -m rouge-l
overlap I BAD
overlap I good.csv --references BAD
overlap BAD good.csv
survey create BAD --candidates A=good.csv --raters a --out NEW --studies 2
survey create good.csv --candidates A=BAD --raters a --out NEW --studies 2
survey create good.csv --candidates A=good.csv --raters a --out NEW --studies 2 --stratify BAD
consensus BAD -m rouge-l
best-of BAD good.csv -m rouge-l
best-of samples.json BAD -m rouge-l
best-of samples.json good.csv -m rouge-l --results BAD
report r.csv --queries BAD --out NEW.html
report BAD --queries good.csv --out NEW.html
bench I BAD -m rouge-l
crg BAD labels.csv --uncertain blank
crg labels.csv BAD --uncertain blank
f1-chexbert BAD labels.csv
f1-srr-bert BAD labels.csv
table BAD
table s.csv --foreign s=BAD
mine I -m rouge-l --anchors BAD --out NEW.parquet
pairs BAD --shape labeled-pair --out NEW.parquet
merge BAD
align BAD
align BAD --samples BAD
compare-metrics A=BAD
failure-modes BAD
agreement BAD
fit-composite BAD --out NEW.json
info BAD
""".strip().splitlines()


def commands(command, path=()):
    """Yield the path of each command, and its options as they are typed."""
    if hasattr(command, "commands"):
        for name in command.list_commands(None):
            yield from commands(command.get_command(None, name), (*path, name))
    else:
        yield " ".join(path), {flag for p in command.params for flag in (*p.opts, *p.secondary_opts)}


OPTIONS = dict(commands(typer.main.get_command(cli.app)))
ARGUMENTS = {name for name in declarations(mo.Read) if "_" in name}
ARGUMENTS |= {f"predicted_{name}" for name in declarations(mo.Read)}


@pytest.mark.parametrize("line", DRIVEN)
def test_options_that_a_message_names_are_those_of_the_command(line, files, bad, oracle, tmp_path, monkeypatch):
    monkeypatch.chdir(files)
    name = next(path for path in sorted(OPTIONS, key=len, reverse=True) if line.startswith(path))
    for path in bad:
        words = [word.replace("BAD", str(path)).replace("NEW", str(tmp_path / path.name)) for word in line.split()]
        code, _, said = oracle(*words)
        assert code in (0, 2), (words, said)
        if code:
            message = said.splitlines()[-1].replace(str(path), "").replace(str(tmp_path), "")
            assert message.startswith((f"error: {name}: ", f"error: oracle {name}: ")), message
            named = {*re.findall(r"(?<![\w-])--?[a-z][a-z-]*", message)}
            assert named <= OPTIONS[name] | (OPTIONS["reports"] if "oracle reports NAME" in message else set()) | (
                {"--foreign"} if "oracle table --foreign" in message else set()
            ), message
            assert not re.search(rf"mo\.|\w=[\"'\w]*\.\.\.|\b({'|'.join(ARGUMENTS)})\b", message), message


# The calls of Python, as the commands above; the name of the function is the first word.
CALLS = {
    "read_reports": lambda bad, _: mo.read_reports(bad),
    "read_reports split": lambda bad, new: mo.read_reports("good.csv", mo.Read(split="train", split_file=bad)),
    "read_predictions": lambda bad, new: mo.read_predictions(bad),
    "read_predictions ids": lambda bad, new: mo.read_predictions("good.csv", mo.Read(ids=bad)),
    "read_predictions metadata": lambda bad, new: mo.read_predictions("good.csv", mo.Read(metadata=bad)),
    "read_samples": lambda bad, new: mo.read_samples(bad),
    "AttachedReports.load": lambda bad, new: mo.reports(bad).load(),
    "AttachedReports.load radgraph": lambda bad, new: mo.reports("good.csv", radgraph=bad).load(),
    "AttachedReports.load chexbert": lambda bad, new: mo.reports("good.csv", chexbert=bad).load(),
    "AttachedReports.load labels": lambda bad, new: mo.reports("good.csv", labels=bad).load(),
    "AttachedReports.load entities": lambda bad, new: mo.reports("good.csv", entities=bad).load(),
    "build_index": mo.build_index,
    "build_index set": lambda bad, new: mo.build_index(bad, new, shard_rows=2),
    "open_index": lambda bad, new: mo.open_index(bad),
    "retrieve": lambda bad, new: mo.retrieve("I", bad, "rouge-l"),
    "retrieve index": lambda bad, new: mo.retrieve(bad, "good.csv", "rouge-l"),
    "retrieve weights": lambda bad, new: mo.retrieve(
        "I", "good.csv", "composite", options=mo.SearchOptions(weights=bad)
    ),
    "baseline": lambda bad, new: mo.baseline("I", bad, "random", "rouge-l"),
    "expectation": lambda bad, new: mo.expectation("I", bad, "rouge-l"),
    "verify": lambda bad, new: mo.verify("I", mo.read_results("r.csv"), bad),
    "read_results": lambda bad, new: mo.read_results(bad),
    "read_scores": lambda bad, new: mo.read_scores(bad),
    "merge": lambda bad, new: mo.merge([bad]),
    "score references": lambda bad, new: mo.score(bad, "good.csv", "rouge-l"),
    "score predictions": lambda bad, new: mo.score("good.csv", bad, "rouge-l"),
    "score both": lambda bad, new: mo.score(bad, bad, "rouge-l"),
    "score index": lambda bad, new: mo.score("good.csv", "good.csv", "rouge-l", index=bad),
    "compute": lambda bad, new: mo.compute(references=bad, predictions="good.csv", metrics="rouge-l"),
    "study": lambda bad, new: mo.study("I", bad, metrics="rouge-l"),
    "study models": lambda bad, new: mo.study("I", "good.csv", {"A": bad}, metrics="rouge-l"),
    "study scores": lambda bad, new: mo.study("I", "good.csv", scores={"A": bad}, metrics="rouge-l"),
    "compare": lambda bad, new: mo.compare({"A": bad}),
    "read_foreign": lambda bad, new: mo.read_foreign("A", bad),
    "overlap": lambda bad, new: mo.overlap("I", {"A": bad}),
    "overlap references": lambda bad, new: mo.overlap("I", {"A": "good.csv"}, bad),
    "create_survey": lambda bad, new: mo.create_survey(
        bad, {"A": "good.csv"}, new, raters=["a"], options=mo.SurveyOptions(studies=2)
    ),
    "create_survey candidates": lambda bad, new: mo.create_survey(
        "good.csv", {"A": bad}, new, raters=["a"], options=mo.SurveyOptions(studies=2)
    ),
    "consensus": lambda bad, new: mo.consensus(bad, "rouge-l"),
    "best_of": lambda bad, new: mo.best_of(bad, "good.csv", "rouge-l"),
    "best_of references": lambda bad, new: mo.best_of("samples.json", bad, "rouge-l"),
    "best_of results": lambda bad, new: mo.best_of("samples.json", "good.csv", "rouge-l", results=[bad]),
    "pairwise": lambda bad, new: mo.pairwise(bad, "rouge-l"),
    "score_crg": lambda bad, new: mo.score_crg(bad, "labels.csv", uncertain="blank"),
    "score_f1_chexbert": lambda bad, new: mo.score_f1_chexbert(bad, "labels.csv"),
    "score_f1_srr": lambda bad, new: mo.score_f1_srr(bad, "labels.csv"),
    "mine": lambda bad, new: mo.mine("I", "rouge-l", f"{new}.parquet", anchors=bad),
    "pairs": lambda bad, new: mo.pairs(bad, shape="labeled-pair", out=f"{new}.parquet"),
    "align": lambda bad, new: mo.align(bad),
    "compare_metrics": lambda bad, new: mo.compare_metrics({"A": mo.RatedFiles(bad)}),
    "failure_modes": lambda bad, new: mo.failure_modes(bad),
    "agreement": lambda bad, new: mo.agreement(bad),
    "fit_composite": lambda bad, new: mo.fit_composite(bad),
}


@pytest.mark.parametrize("call", CALLS)
def test_arguments_that_a_message_names_are_those_of_the_function(call, files, bad, tmp_path, monkeypatch):
    monkeypatch.chdir(files)
    name = call.partition(" ")[0]
    for path in bad:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            try:
                CALLS[call](path, tmp_path / path.name)
            except mo.MetricOracleError as error:
                message = str(error).replace(str(path), "").replace(str(tmp_path), "")
            else:
                continue
        assert message.startswith(f"{name}: "), message
        assert not re.search(r"(?<![\w-])--[a-z]|(?<!-)\boracle [a-z]|build-index|fit-composite", message), message
        inside = dict(re.findall(r"mo\.(\w+)\([^()]*?(\w+)=", message))
        for function, argument in inside.items():
            assert argument in inspect.signature(getattr(mo, function)).parameters, message
        bare = re.sub(r"mo\.\w+\((?:[^()]|\([^()]*\))*\)", "", message)
        function = mo.reports if name == "AttachedReports.load" else getattr(mo, name)
        assert {*re.findall(r"(?<![\w'])([a-z_]+)=", bare)} <= {*inspect.signature(function).parameters}, message
