"""Freeze what users see, so that a change of code shows in a git diff what it changes for them.

``python tests/frozen.py`` writes the folder ``tests/frozen`` anew, and ``test_frozen.py`` compares it with what the
package does now. After a change that is intended, run the script and commit the folder: its diff is part of the review.

- ``help/``: the help of every command, at 80 columns
- ``commands/``: sessions of commands on the files of `oracle example`, with all that they print on a terminal of 80
  columns and in a pipe
- ``files/``: every file that these commands write. A Parquet file is shown as its schema, its metadata and its rows as
  JSON, an HTML page without style and script, other binary files as their names in `not-shown.txt`.
- ``signatures.txt``: the keys of every signature
- ``public.txt``: the public names, the signatures of functions, the methods and fields of classes

Times, digests, secrets, the version and what depends on the processor are replaced; results are as printed.
"""

import functools
import importlib.metadata
import inspect
import itertools
import json
import os
import re
import shlex
import shutil
import sys
import tempfile
from contextlib import chdir, contextmanager, redirect_stderr, redirect_stdout
from pathlib import Path
from unittest import mock

import numpy as np
import pyarrow.parquet
import typer

import metric_oracle as mo
from metric_oracle import cli
from metric_oracle.base.files import package_version
from metric_oracle.corpora.label_tables import read_labels
from metric_oracle.survey.folder import open_survey
from metric_oracle.synthetic.example import write_example
from support import write_srr
from support.small import as_in_a_new_process
from support.terminal import Terminal

ROOT = Path(__file__).parents[1]
FOLDER = ROOT / "tests/frozen"

# Name of a session -> the packages of extras that it needs, and its commands. Each session has a fresh copy of the
# example. A command without --out runs twice, on a terminal and in a pipe; one with --out runs once.
SESSIONS = {
    "search": (
        (),
        """
        reports
        reports mine test.csv --radgraph test_graphs.json --title "My tests"
        reports mine
        reports drawn samples.jsonl --dry-run
        build-index train --out INDEX
        build-index test.csv --radgraph test_graphs.json --out TESTS --quiet
        info INDEX
        info INDEX --check --format jsonl
        metrics
        metrics --format jsonl
        retrieve INDEX --text "No acute cardiopulmonary process." -m rouge-l -k 3
        retrieve INDEX --text "Small left pleural effusion." -m bleu -k 2 --format csv
        retrieve INDEX mine -m radgraph --out oracle.parquet
        retrieve INDEX TESTS -m radgraph -k 2 --out two.csv
        retrieve INDEX TESTS -m cider-d --no-text --out cider.jsonl
        retrieve INDEX test -m chexbert:agreement --no-text --out labels.csv
        retrieve INDEX test.csv -m temporal --no-text --format jsonl
        retrieve INDEX test.csv -m jaccard:2 --no-text --format table
        retrieve INDEX test -m radgraph+chexbert:agreement --no-text --out sum.parquet
        retrieve INDEX test -m crg --no-text --out crg.csv
        verify INDEX oracle.parquet TESTS --sample 24
        verify INDEX oracle.parquet mine
        verify INDEX two.csv TESTS
        report oracle.parquet --queries TESTS --index INDEX --out page.html
        report oracle.parquet --queries TESTS --index INDEX --no-text --out short.html
        """,
    ),
    "baselines": (
        (),
        """
        build-index train.csv --metrics bleu,rouge-l --out INDEX
        baseline identity INDEX test.csv -m bleu --out identity.parquet
        baseline identity INDEX test.csv -m rouge-l --no-text
        baseline most-frequent INDEX test.csv -m bleu --out frequent.parquet
        baseline random INDEX test.csv -m bleu --out random.parquet
        baseline random INDEX test.csv -m rouge-l --draws 2 --seed 5 --no-text --out drawn.csv
        baseline expectation INDEX test.csv -m bleu --out chance.parquet
        baseline expectation INDEX test.csv -m rouge-l
        baseline nearest INDEX test.csv -m bleu --corpus-vectors train.npz --query-vectors test.npz --out near.parquet
        """,
    ),
    "kernels": (
        (),
        """
        build-index train --out INDEX --quiet
        retrieve INDEX test -m radgraph --backend cpu --out radgraph.parquet
        retrieve INDEX test -m bleu --backend cpu --no-text --out bleu.parquet
        retrieve INDEX test -m rouge-l --backend cpu --no-text --out rouge.parquet
        retrieve INDEX test -m cider-d --backend cpu --no-text --out cider.parquet
        retrieve INDEX test -m radgraph+chexbert:agreement --backend cpu --no-text --out sum.parquet
        build-index train --out SET --shard-rows 200 --quiet
        retrieve SET test -m radgraph --backend cpu --part 1/2 --out part-1.parquet
        retrieve SET test -m radgraph --backend cpu --part 2/2 --out part-2.parquet
        merge part-1.parquet part-2.parquet --out merged.parquet
        """,
    ),
    "parts": (
        (),
        """
        build-index train.csv --shard-rows 150 --metrics bleu --out SET
        info SET
        retrieve SET test.csv -m bleu -k 2 --out whole.parquet
        retrieve SET test.csv -m bleu -k 2 --part 1/2 --out part-1.parquet
        retrieve SET test.csv -m bleu -k 2 --part 2/2 --out part-2.parquet
        merge part-1.parquet part-2.parquet --out merged.parquet
        merge part-1.parquet part-2.parquet --format csv
        merge part-1.parquet
        verify SET merged.parquet test.csv
        """,
    ),
    "scores": (
        (),
        """
        score test strong -m radgraph,bleu,rouge-l --out strong.parquet
        score test fair -m radgraph,bleu,rouge-l --out fair.parquet
        score test weak -m radgraph,bleu,rouge-l --out weak.parquet
        score test.csv strong.csv -m bleu,rouge-l,temporal,jaccard:1
        score test.csv strong.csv -m bleu-1:coco,bleu-4:coco,rouge-l:coco,cider-d --out coco.csv
        score test.csv strong.csv -m bleu,rouge-l --format csv
        score test strong -m bleu,radgraph --published-names --out published.csv
        reports tests test.csv --srr-labels test_srr.csv --labels test_labels.csv --uncertain positive
        reports ours strong.csv --srr-labels strong_srr.csv --labels strong_labels.csv --uncertain positive --quiet
        score tests ours -m srr-bert,labels:f1,labels:agreement --out labels.jsonl
        build-index train.csv --radgraph train_graphs.json --out INDEX --quiet
        retrieve INDEX test -m radgraph --out oracle.parquet
        baseline random INDEX test -m radgraph --out random.parquet
        table strong.parquet weak.parquet --resamples 1000
        table strong.parquet weak.parquet --resamples 1000 --format md
        table Strong=strong.parquet Fair=fair.parquet Weak=weak.parquet oracle=oracle.parquet random=random.parquet
            --random random --oracle radgraph=oracle --paired Strong,Fair --paired Weak,oracle --resamples 1000
        table Strong=strong.parquet Fair=fair.parquet Weak=weak.parquet oracle=oracle.parquet random=random.parquet
            --random random --oracle radgraph=oracle --paired Strong,Fair --resamples 1000 --format tex
        table Strong=strong.parquet Fair=fair.parquet --paired Strong,Fair --resamples 1000 --format csv
        table Strong=strong.parquet Fair=fair.parquet --paired Strong,Fair --resamples 1000 --out table.md
        table Strong=strong.parquet Fair=fair.parquet --paired Strong,Fair --resamples 1000 --out table.tex
        table Strong=strong.parquet Fair=fair.parquet --paired Strong,Fair --resamples 1000 --out table.csv
        table Strong=strong.parquet Fair=fair.parquet --paired Strong,Fair --resamples 1000 --out table.jsonl
        table Strong=strong.parquet --foreign Strong=judged.csv --direction errors=lower --resamples 1000 --out more.md
        crg test_labels.csv strong_labels.csv --uncertain positive
        crg test_labels.csv strong_labels.csv --uncertain positive --format csv
        crg test_labels.csv strong_labels.csv --uncertain positive --out crg.csv
        crg test_labels.csv strong_labels.csv --uncertain positive --out crg.jsonl
        crg test_labels.csv strong_labels.csv --uncertain positive --out crg.parquet
        f1-chexbert test_labels.csv strong_labels.csv
        f1-chexbert test_labels.csv strong_labels.csv --format csv
        f1-chexbert test_labels.csv strong_labels.csv --out f1.csv
        f1-chexbert test_labels.csv strong_labels.csv --out f1.jsonl
        f1-chexbert test_labels.csv strong_labels.csv --out f1.parquet
        f1-srr-bert test_srr.csv strong_srr.csv
        f1-srr-bert test_srr.csv strong_srr.csv --out srr.csv
        f1-srr-bert test_srr.csv strong_srr.csv --out srr.jsonl
        f1-srr-bert test_srr.csv strong_srr.csv --out srr.parquet
        """,
    ),
    "study": (
        ("matplotlib",),
        """
        build-index train.csv --radgraph train_graphs.json --out INDEX --quiet
        study INDEX test Strong=strong -m bleu,radgraph --out study
        study INDEX test.csv Strong=strong.csv weak -m bleu,rouge-l
        """,
    ),
    "copies": (
        (),
        """
        build-index train.csv --metrics rouge-l,bleu-2 --out COPIES
        overlap COPIES strong.csv weak.csv --references test.csv
        overlap COPIES strong.csv weak.csv --references test.csv --format md
        overlap COPIES strong.csv weak.csv --references test.csv --format tex
        overlap COPIES Strong=strong.csv Weak=weak.csv --references test.csv --out copies.md --pairs pairs.parquet
        overlap COPIES Strong=strong.csv --references test.csv --out copies.parquet --pairs pairs.csv
        overlap COPIES Strong=strong.csv --out copies.csv
        """,
    ),
    "mining": (
        (),
        """
        build-index test --out MINED
        mine MINED -m rouge-l -k 3 --where "radgraph<=0.3" --out negatives.parquet
        mine MINED -m radgraph -k 2 --exclude text --min-score 0.2 --out positives.parquet
        mine MINED -m radgraph+chexbert:agreement -k 1 --self-score --where "chexbert:agreement>=0.5"
            --out factmm.parquet
        mine MINED -m rouge-l -k 1 --exclude text --where "radgraph<=0.5" --positives positives.parquet
            --absolute-margin 0.1 --with-text --out margin.parquet
        mine MINED -m rouge-l -k 1
        mine MINED -m rouge-l -k 1 --part 1/1 --out part-1.parquet
        mine MINED -m rouge-l -k 1 --part 1/2 --out part-1.parquet
        merge part-1.parquet --out mined.parquet
        pairs positives.parquet negatives.parquet --shape triplet --index MINED --out triplets.parquet
        pairs positives.parquet negatives.parquet --shape n-tuple --index MINED --out tuples.parquet
        pairs positives.parquet --shape labeled-pair --index MINED --out labeled.parquet
        pairs positives.parquet --shape trec --index MINED --out exact.qrels
        pairs positives.parquet --shape trec --index MINED --out exact.jsonl
        """,
    ),
    "samples": (
        (),
        """
        consensus samples -m radgraph,rouge-l --weighted --out chosen.csv
        consensus samples.jsonl -m rouge-l
        consensus samples.jsonl -m rouge-l --out agreed.parquet
        build-index train.csv --metrics rouge-l --out INDEX --quiet
        retrieve INDEX test.csv -m rouge-l --quiet --out oracle.parquet
        baseline expectation INDEX test.csv -m rouge-l --quiet --out chance.parquet
        best-of samples.jsonl test.csv -m rouge-l
        best-of samples.jsonl test.csv -m rouge-l --results oracle.parquet --results chance.parquet --format md
        best-of samples.jsonl test.csv -m rouge-l --results oracle.parquet --format tex
        best-of samples.jsonl test.csv -m rouge-l,bleu --out curve.csv
        best-of samples.jsonl test.csv -m rouge-l --out curve.md
        best-of samples.jsonl test.csv -m rouge-l --scores best.parquet --out curve.parquet
        """,
    ),
    "radiologists": (
        (),
        """
        align ratings.csv --samples samples.csv -m bleu,rouge-l --resamples 200
        align ratings.csv --samples samples.csv -m bleu,rouge-l --resamples 200 --format md
        align ratings.csv --samples samples.csv -m bleu,rouge-l --resamples 200 --format tex
        align ratings.csv --samples samples.csv -m bleu,rouge-l --resamples 200 --out align.csv
        align ratings.csv --samples samples.csv -m bleu,rouge-l --resamples 200 --out align.parquet
        compare-metrics Mine=ratings.csv --samples Mine=samples.csv -m bleu,rouge-l,jaccard:1
            --paired rouge-l,bleu-2 --resamples 200
        compare-metrics Mine=ratings.csv --samples Mine=samples.csv -m bleu,rouge-l,jaccard:1
            --paired rouge-l,bleu-2 --resamples 200 --out compared.md
        compare-metrics Mine=ratings.csv --samples Mine=samples.csv -m bleu,rouge-l --resamples 200 --out compared.tex
        compare-metrics Mine=ratings.csv --samples Mine=samples.csv -m bleu,rouge-l --resamples 200
            --out compared.parquet
        compare-metrics Preferences=preferences.csv Orders=orders.csv -m bleu,rouge-l --resamples 200
        compare-metrics Preferences=preferences.csv Orders=orders.csv -m bleu,rouge-l --resamples 200 --out orders.md
        compare-metrics Preferences=preferences.csv Orders=orders.csv -m bleu,rouge-l --resamples 200 --out both.csv
        failure-modes ratings.csv
        failure-modes ratings.csv --out errors.tex
        failure-modes ratings.csv --out errors.md
        failure-modes ratings.csv --out errors.csv
        failure-modes ratings.csv --out errors.parquet
        agreement ratings.csv --resamples 200
        agreement ratings.csv --resamples 200 --format tex
        agreement ratings.csv --resamples 200 --out agreement.md
        agreement ratings.csv --resamples 200 --out agreement.csv
        agreement ratings.csv --resamples 200 --out agreement.parquet
        fit-composite ratings.csv --samples samples.csv -m bleu,rouge-l
        fit-composite ratings.csv --samples samples.csv -m bleu,rouge-l --out weights.json
        build-index train.csv --metrics bleu,rouge-l --out INDEX --quiet
        retrieve INDEX test.csv -m composite --weights weights.json --components --no-text --out composite.parquet
        """,
    ),
    "survey": (
        (),
        """
        survey create test.csv --candidates strong=strong.csv --candidates weak=weak.csv --raters anna,ben
            --studies 3 --repeats 1 --out SURVEY
        survey status SURVEY
        survey export SURVEY --out EXPORT
        rate SURVEY
        survey status SURVEY
        survey export SURVEY --out EXPORT --partial
        survey export SURVEY --out WITHOUT --leave-out "ben=on leave"
        """,
    ),
    "plots": (
        ("matplotlib",),
        """
        align ratings.csv --samples samples.csv -m bleu --resamples 200 --quiet --plot align.png --out align.md
        failure-modes ratings.csv --quiet --plot errors.png --out errors.parquet
        best-of samples.jsonl test.csv -m rouge-l --quiet --plot curve.png --out curve.md
        """,
    ),
    "tools": (
        (),
        """
        --version
        example more
        synth made --reports 30 --tests 5
        nonsense
        retrieve
        retrieve INDEX test.csv
        score test.csv
        table test.csv
        score test.csv strong.csv -m wrong
        score test.csv strong.csv -m bleu -k 3
        """,
    ),
}

HELP_WIDTH = 80
BINARY = (".png", ".arrow", ".npz", ".npy")
SECRET_FILES = ("stamps.json", "links.json")  # times of files; the addresses of raters
LONGEST = 16_000  # characters of a file or of what a command prints; the middle of longer text is left out
OF_EXAMPLES = 1_500  # the same for the files of the session of `oracle example` and `oracle synth`
ONCE = ("example", "synth")  # commands that write without --out


def paths(command, path=()):
    """Yield the path of every group and command."""
    yield path
    for name in command.list_commands(None) if hasattr(command, "list_commands") else ():  # families are loaded by name
        yield from paths(command.get_command(None, name), (*path, name))


def without_numbers(found):
    """Return a matched object with 0 for each value."""
    return re.sub(r"(?<=: )[^,{}\n]+", "0", found[0])


def without_times(paragraph):
    """Return a paragraph without the times of a table, which names the cores, and the widths that they give it."""
    cores = r"\b\d+ cores?\b"
    if not re.search(cores, paragraph):
        return paragraph
    lines = []
    for line in paragraph.split("\n"):
        if re.search(cores, line):
            line = re.sub(r"(?<![\w.:-])\d+(\.\d+)?(e-?\d+)?(?![\w.])", "0", re.sub(cores, "N cores", line))
        lines.append(line if "{" in line else re.sub("─+", "─", re.sub(" {2,}", "  ", line)))
    return "\n".join(lines)


def normalised(text):
    """Replace what depends on the time, the machine and its processor by something of the same width."""
    text = re.sub(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?(\+00:00|Z)", r"2026-01-01T00:00:00\2", text)
    text = re.sub(r"20\d\d-\d\d-\d\d \d\d:\d\d", "2026-01-01 00:00", text)
    text = re.sub(r"(?<![\w.])[0-9a-f]{64}\b", "x" * 64, text)
    # Digests of an answer with its time, and of the line before it.
    text = re.sub(r'("(?:check|after)": ?")[0-9a-f]{16}"', r'\1xxxxxxxxxxxxxxxx"', text)
    text = "\n\n".join(map(without_times, text.split("\n\n")))
    return re.sub(r'"(?:stages|closest_call|machine)": \{[^{}]*\}', without_numbers, text)


def shown(text):
    """Return normalised text as it is stored: it ends with one newline, and lines do not end with blanks."""
    return "".join(f"{line.rstrip()}\n" for line in normalised(text).rstrip("\n").split("\n"))


@contextmanager
def surroundings(folder):
    """Work in a folder, on a terminal of 80 columns, with a version that stays."""
    read = importlib.metadata.Distribution.version.fget
    version = property(lambda found: "0.0.0" if found.name == "metric-oracle" else read(found))
    variables = {"COLUMNS": str(HELP_WIDTH), "TERMINAL_WIDTH": str(HELP_WIDTH), "TERM": "dumb"}
    variables["ORACLE_PROGRESS"] = "1000000"  # seconds: no line of it, however long this machine takes
    with (
        chdir(folder),
        mock.patch.dict(os.environ, variables),
        mock.patch.object(sys, "argv", ["oracle"]),
        mock.patch.object(importlib.metadata.Distribution, "version", version),
    ):
        for variable in ("ORACLE_DEBUG", "NO_COLOR", "FORCE_COLOR"):
            os.environ.pop(variable, None)
        package_version.cache_clear()
        try:
            yield
        finally:
            package_version.cache_clear()


def run(words, *, is_terminal):
    """Run a command in this process as in one of its own; return its exit code, stdout and stderr."""
    out, err = [], []
    sys.argv = ["oracle", *words]
    with (
        as_in_a_new_process(),
        redirect_stdout(Terminal(out, is_terminal=is_terminal)),
        redirect_stderr(Terminal(err, is_terminal=False)),
    ):
        try:
            cli.main()
            code = 0
        except SystemExit as end:
            code = end.code or 0
    return code, "".join(out), "".join(err)


def helps():
    """Return the help of every command, by the path of its file."""
    found = {}
    with tempfile.TemporaryDirectory() as folder, surroundings(folder):
        for path in paths(typer.main.get_command(cli.app)):
            code, out, err = run([*path, "--help"], is_terminal=True)
            assert (code, err) == (0, ""), (path, err)
            found[f"help/{'-'.join(('oracle', *path))}.txt"] = shown(out)
    found["help/versions.txt"] = versions_of_help()
    return found


def versions_of_help():
    """Return the versions of what lays out the help."""
    return "".join(f"{name} {importlib.metadata.version(name)}\n" for name in ("rich", "typer"))


def prepare(folder):
    """Write files that the example lacks: labels of SRR-BERT, vectors, scores by another tool, preferences, orders."""
    for name in ("test", "strong"):
        labels = read_labels(folder / f"{name}_labels.csv")
        write_srr(folder / f"{name}_srr.csv", labels.ids, labels.values)
    for name in ("train", "test"):
        labels = read_labels(folder / f"{name}_labels.csv")
        vectors = np.c_[labels.values, np.arange(len(labels.ids)) % 5 + 1].astype(np.float32)
        np.savez(folder / f"{name}.npz", ids=np.array(labels.ids), embeddings=vectors)
    ids = read_labels(folder / "test_labels.csv").ids
    lines = [f"{study},{i % 7 / 8},{i % 3}\n" for i, study in enumerate(ids)]
    (folder / "judged.csv").write_text("study_id,green_score,errors\n" + "".join(lines), encoding="utf-8")
    page = (ROOT / "docs/radiologists.md").read_text(encoding="utf-8")
    for name, text in re.findall(
        r'^Path\("(\w+\.csv)"\)\.write_text\("""\\\n(.*?)^"""\)$', page, re.MULTILINE | re.DOTALL
    ):
        (folder / name).write_text(text, encoding="utf-8")


@functools.cache
def example():
    """Return the folder of the example, made once."""
    folder = tempfile.TemporaryDirectory(prefix="frozen-")
    path = Path(folder.name) / "try"
    write_example(path)
    prepare(path)
    return folder, path


def rate(folder):
    """Answer as the raters of a survey: anna all, ben but the last study."""
    survey = open_survey(folder)
    for rater, n_studies in (("anna", 4), ("ben", 3)):
        for study, candidate in itertools.product(range(n_studies), range(2)):
            counts = [[(study + candidate + category + len(rater)) % 3, category % 2] for category in range(6)]
            asked = {
                "id": f"answer-{rater}-{study}-{candidate}",
                "study": study,
                "candidate": candidate,
                "counts": counts,
            }
            survey.log(rater).save({**asked, "base": 0, "survey": survey.fingerprint})


def commands(text):
    """Yield the lines of a session, joined where a line goes on."""
    yield from re.sub(r"\n {12}", " ", inspect.cleandoc(text)).replace("\n    ", " ").split("\n")


def signatures_in(value):
    """Yield what is a signature in a file's metadata or in a printed text."""
    for line in value.split("\n"):
        found = re.search(r"signature: (\{.*\})", line)
        if found:
            yield json.loads(found[1].replace("&gt;", ">"))


def keys_of(value, before=""):
    """Yield the paths of the keys of nested dicts; the names of files, systems and metrics are among them."""
    for key, inner in value.items():
        yield f"{before}{key}"
        if isinstance(inner, dict):
            yield from keys_of(inner, f"{before}{key} / ")


def parquet_text(path, signatures):
    """Return schema, metadata and rows of a Parquet file as text."""
    table = pyarrow.parquet.read_table(path)
    lines = [f"{field.name}: {field.type}{'' if field.nullable else ' not null'}" for field in table.schema]
    for key, value in (table.schema.metadata or {}).items():
        if key == b"ARROW:schema":
            continue
        text = value.decode()
        lines.append(f"\nmetadata {key.decode()}")
        try:
            content = json.loads(text)
        except json.JSONDecodeError:
            lines.append(text)
            continue
        lines.append(json.dumps(content, indent=1, ensure_ascii=False))
        if "signature" in key.decode() and isinstance(content, dict):
            signatures.append(content)
    lines.append("\nrows")
    lines.append(json.dumps(table.column_names, ensure_ascii=False))
    lines += [json.dumps([*row.values()], ensure_ascii=False) for row in table.to_pylist()]
    return "\n".join(lines)


def file_text(path, signatures):
    """Return a written file as text."""
    if path.suffix == ".parquet":
        return parquet_text(path, signatures)
    text = path.read_text(encoding="utf-8")
    signatures += signatures_in(text)
    if path.name.endswith(".signature.json"):
        signatures.append(json.loads(text))
    if path.suffix == ".html":
        text = re.sub(r"(<(style|script)\b[^>]*>).*?</\2>", r"\1(left out)</\2>", text, flags=re.DOTALL)
        text = text.replace("><", ">\n<")
    return text


def shortened(text, longest):
    """Leave out the middle of a long text."""
    if len(text) <= longest:
        return text
    lines = text.split("\n")
    kept = max(2, len(lines) * longest // len(text) // 2)
    return "\n".join([*lines[:kept], f"[{len(lines) - 2 * kept} lines are left out]", *lines[-kept:]])


@functools.cache
def session(name):
    """Run a session; return what it prints and writes, and the keys of its signatures, by the path of a file."""
    said, found, keys, not_shown = [], {}, [], []
    with tempfile.TemporaryDirectory(prefix="frozen-") as place:
        folder = Path(shutil.copytree(example()[1], Path(place) / "try"))
        with surroundings(folder):
            before = {path: path.stat().st_mtime_ns for path in folder.rglob("*") if path.is_file()}
            for line in commands(SESSIONS[name][1]):
                words = shlex.split(line)
                if words[0] == "rate":
                    rate(words[1])
                    continue
                said.append(f"$ oracle {line}\n")
                code, out, err = run(words, is_terminal=True)
                said.append(f"--- terminal\n{shortened(out, LONGEST)}" if out else "")
                if out and "--out" not in words and words[0] not in ONCE:
                    again, piped, _ = run(words, is_terminal=False)
                    assert again == code, line
                    said.append(f"--- pipe\n{shortened(piped, LONGEST)}")
                said.append(f"--- stderr\n{err}" if err else "")
                said.append(f"--- exit code {code}\n" if code else "")
                said.append("\n")
                signatures = []
                for path in sorted(path for path in folder.rglob("*") if path.is_file()):
                    if before.get(path) == path.stat().st_mtime_ns:
                        continue
                    before[path] = path.stat().st_mtime_ns
                    place = path.relative_to(folder).as_posix()
                    if path.suffix in BINARY or path.name in SECRET_FILES:
                        not_shown.append(place)
                        continue
                    text = shown(file_text(path, signatures))
                    longest = OF_EXAMPLES if name == "tools" else LONGEST
                    found[f"files/{name}/{place}.txt"] = shortened(text, longest)
                for one in dict.fromkeys(tuple(sorted(keys_of(signature))) for signature in signatures):
                    keys.append("\n  ".join([f"oracle {line}", *one]))
    if not_shown:
        found[f"files/{name}/not-shown.txt"] = shown("\n".join(sorted(set(not_shown))))
    found[f"commands/{name}.txt"] = shown("".join(said))
    return found, keys


def public():
    """Return the public names, with the signatures of functions and the methods and fields of classes."""
    lines = ["mo.__all__", *(f"  {name}" for name in mo.__all__)]
    for name in mo.__all__:
        value = getattr(mo, name)
        lines.append(f"\n{name}{signature(value)}")
        if inspect.isclass(value):
            lines += [f"  {line}" for line in members(value)]
    return shown("\n".join(lines))


def signature(value):
    """Return a signature, a parameter a line, as any version of Python names its types."""
    try:
        found = inspect.signature(value)
    except (TypeError, ValueError):
        return ""
    lines = [f"    {parameter}," for parameter in found.parameters.values()]
    kinds = [str(parameter.kind) for parameter in found.parameters.values()]
    if "KEYWORD_ONLY" in " ".join(kinds) and "VAR_POSITIONAL" not in " ".join(kinds):
        lines.insert(next(i for i, p in enumerate(found.parameters.values()) if p.kind is p.KEYWORD_ONLY), "    *,")
    returns = "" if found.return_annotation is found.empty else inspect.formatannotation(found.return_annotation)
    text = "\n".join(["(", *lines, f") -> {returns}"])
    # What stands for arrays and for annotated types depends on NumPy and Python.
    text = re.sub(r"numpy\.ndarray\[(?:tuple\[[^\]]*\], )?numpy\.dtype\[([\w.]+)\]\]", r"NDArray[\1]", text)
    text = re.sub(r"\b(?:numpy\.)?typing\.(?=Annotated|NDArray)", "", text)
    return re.sub(r" at 0x[0-9a-f]+", "", text.replace("pathlib._local.", "pathlib."))


def members(owner):
    """Yield the public methods and fields of a class, its own and those of the package that it inherits."""
    fields = {}
    for base in reversed(owner.__mro__):
        if base.__module__.startswith("metric_oracle"):
            fields |= dict.fromkeys([*vars(base), *vars(base).get("__annotations__", ())], base)
    for name in sorted(name for name in fields if not name.startswith("_")):
        value = inspect.getattr_static(owner, name, None)
        value = value.__func__ if isinstance(value, classmethod | staticmethod) else value
        is_method = inspect.isroutine(value)
        yield f"{name}{signature(value)}".replace("\n", "\n  ") if is_method else name


def everything():
    """Return the text of every file."""
    found = {**helps(), "public.txt": public()}
    for name in SESSIONS:
        found |= session(name)[0]
    found["signatures.txt"] = signature_keys()
    return found


def signature_keys():
    """Return the keys of all signatures."""
    return shown("\n\n".join(dict.fromkeys(keys for name in SESSIONS for keys in session(name)[1])))


def write():
    """Write the folder anew."""
    texts = everything()
    for name in ("help", "commands", "files"):
        shutil.rmtree(FOLDER / name, ignore_errors=True)
    for name, text in texts.items():
        path = FOLDER / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    write()
