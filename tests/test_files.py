"""Files that one command writes and another reads: damage is one line that names the file, or changes nothing.

`WRITTEN` names the commands that write such files; `NOT_READ` says of others with --out why no command reads what they
write. A new command with --out fails `test_every_command_that_writes_has_its_place` until it stands in one of them,
unless it writes tables or pages for people.
"""

import contextlib
import inspect
import io
import json
import os
import random
import re
import shlex
import shutil
import signal
import sys
import threading
import uuid
from pathlib import Path

import pyarrow as pa
import pytest
from pyarrow import parquet

import metric_oracle as mo
from generated import registered
from metric_oracle import cli
from metric_oracle.base import checksum
from metric_oracle.base.errors import InputError
from metric_oracle.mining import mine as mining
from metric_oracle.survey.folder import open_survey
from support.signals import signalled

FLIPS = 6
TABLES = (".csv", ".jsonl", ".parquet")
EXPORTED = ("pairs_candidates", "pairs_references", "ratings", "samples", "scores")
# Command -> the lines that run it, and for each file that it writes: the lines of the commands that read the file.
WRITTEN = {
    "build-index": (
        ["build-index ex/train.csv -m bleu,rouge-l --out INDEX"],
        {"INDEX/manifest.json": ["retrieve INDEX ex/test.csv -m bleu"]},
    ),
    "retrieve": (
        [f"retrieve INDEX ex/test.csv -m bleu -k 2 --out r{ending}" for ending in TABLES],
        {
            f"r{ending}": [
                f"verify INDEX r{ending} ex/test.csv --sample 3",
                f"report r{ending} --queries ex/test.csv --index INDEX --out page.html",
            ]
            for ending in TABLES
        },
    ),
    "baseline": (
        ["baseline random INDEX ex/test.csv -m bleu --out random.csv"],
        {"random.csv": ["table a=r.csv b=random.csv --resamples 200"]},
    ),
    "score": (
        [f"score ex/test.csv ex/strong.csv -m bleu,rouge-l --out strong{ending}" for ending in TABLES],
        {f"strong{ending}": [f"table a=strong{ending} --resamples 200"] for ending in TABLES},
    ),
    "consensus": (
        [f"consensus ex/samples.jsonl -m bleu --out best{ending}" for ending in TABLES],
        {
            f"best{ending}": [
                f"score ex/test.csv best{ending} -m rouge-l", f"retrieve INDEX best{ending} -m bleu",
            ]
            for ending in TABLES
        },
    ),
    "mine": (
        ["mine INDEX -m bleu -k 2 --out mined.parquet"],
        {"mined.parquet": ["pairs mined.parquet --shape trec --index INDEX --out qrels.txt"]},
    ),
    "study": (
        ["study INDEX ex/test.csv S=ex/strong.csv -m bleu --out study"],
        {
            "study/S.parquet": ["table a=study/S.parquet --resamples 200"],
            "study/oracle.toml": ["report study --out page.html"],
        },
    ),
    "survey": (
        [
            "survey create ex/test.csv --candidates M=ex/strong.csv --candidates W=ex/weak.csv --raters anna,ben "
            "--studies 4 --out SV",
            "survey export SV --out EX",
        ],
        {
            "SV/survey.json": ["survey status SV"],
            "SV/key.json": ["survey export SV --out EX2"],
            "EX/ratings.csv": [
                "agreement EX/ratings.csv", "align EX/ratings.csv --scores EX/scores.csv --resamples 200",
            ],
            "EX/samples.csv": ["align EX/ratings.csv --samples EX/samples.csv --resamples 200"],
            "EX/scores.csv": ["align EX/ratings.csv --scores EX/scores.csv --resamples 200"],
            **{
                f"EX/pairs_{side}.csv": ["score EX/pairs_references.csv EX/pairs_candidates.csv -m bleu"]
                for side in ("references", "candidates")
            },
        },
    ),
    "fit-composite": (
        ["fit-composite EX/ratings.csv --scores EX/scores.csv -m bleu,rouge-l --out w.json"],
        {"w.json": ["retrieve INDEX ex/test.csv -m composite --weights w.json"]},
    ),
}  # fmt: skip
MODEL = "needs a model: tests/test_cli_tools.py, encoders/test_crepe_training.py"
NUMBERS = "numbers for people; `NAME.signature.json` has the checksum"
NOT_READ = {
    "annotate": MODEL, "train-crepe": MODEL, "rerank": "writes what retrieve writes",
    "merge": "writes what retrieve and mine write", "synth": "made-up files to try things on, which users change",
    "pairs": "for training libraries", "pool": "a judge adds scores: test_judged_pools.py",
    "crg": NUMBERS, "f1-chexbert": NUMBERS, "f1-srr-bert": NUMBERS, "bench": NUMBERS,
}  # fmt: skip
CASES = [(file, reader) for _, files in WRITTEN.values() for file, readers in files.items() for reader in readers]
MADE = ("page.html", "qrels.txt", "qrels.txt.signature.json", "EX2")  # by the readers


def run(line):
    """Run a command in this process; return exit code and what it printed."""
    out, err, code = io.StringIO(), io.StringIO(), 0
    with pytest.MonkeyPatch.context() as patch, contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        patch.setattr(sys, "argv", ["oracle", *shlex.split(line), "--quiet"])
        patch.delenv("ORACLE_DEBUG", raising=False)
        try:
            cli.main()
        except SystemExit as end:
            code = end.code or 0
    return code, out.getvalue(), err.getvalue()


def rate(folder):
    """Save counts of errors for every rater of a survey."""
    survey, rng = open_survey(folder), random.Random(3)
    for rater in survey.raters:
        log = survey.log(rater)
        for study, shown in enumerate(survey.studies):
            for candidate in range(len(shown.candidates)):
                counts = [[rng.randrange(3), rng.randrange(3)] for _ in survey.categories]
                place = {"study": study, "candidate": candidate, "base": 0}
                log.save(
                    {
                        "survey": survey.fingerprint,
                        "id": str(uuid.UUID(int=rng.getrandbits(128))),
                        **place,
                        "counts": counts,
                    }
                )


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    """Return a folder with what every command wrote."""
    folder = tmp_path_factory.mktemp("written")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        assert run("example ex")[0] == 0
        for lines, _ in WRITTEN.values():
            for line in lines:
                if line.startswith("survey export"):
                    rate("SV")
                assert run(line)[0] == 0, run(line)
    return folder


def flipped(content, number):
    """Return bytes with one bit flipped, and the place of the bit; half of them in the first 2,000 bytes."""
    rng = random.Random(f"{len(content)} {number}")
    place = rng.randrange(len(content) if number % 2 else min(len(content), 2000))
    return content[:place] + bytes([content[place] ^ 1 << rng.randrange(8)]) + content[place + 1 :], place


def clean():
    for name in MADE:
        shutil.rmtree(name) if Path(name).is_dir() else Path(name).unlink(missing_ok=True)


def test_every_command_that_writes_has_its_place():
    writing = set()
    for _, _, group, info in registered():
        endings = info.callback.endings
        has_out = endings or any(p.name == "out" for p in inspect.signature(info.callback.make()).parameters.values())
        if has_out and not {".md", ".html"} & {*endings}:  # the endings of tables for people and of pages
            writing.add(group.name or info.name)
    assert sorted([*WRITTEN, *NOT_READ]) == sorted(writing)


@pytest.mark.parametrize(("file", "reader"), CASES)
def test_a_flipped_bit_is_an_error_or_changes_nothing(written, monkeypatch, file, reader):
    monkeypatch.chdir(written)
    clean()
    wanted = run(reader)
    assert wanted[0] == 0, wanted
    beside = Path(f"{file}.signature.json")
    for path in [Path(file), *([beside] if beside.exists() else [])]:
        before = path.read_bytes()
        try:
            for number in range(FLIPS):
                content, place = flipped(before, number)
                path.write_bytes(content)
                clean()
                code, out, err = run(reader)
                if code == 0:
                    assert (out, err) == wanted[1:], (path, place)
                else:
                    assert code == (1 if reader.startswith("verify") and code == 1 else 2), (path, place, err)
                    assert err.startswith("error: "), (path, place, err)
                    assert err.count("\n") == 1, err
                    assert Path(file).name in err or Path(file).parent.name in err, (path, place, err)
        finally:
            path.write_bytes(before)
    clean()
    assert run(reader) == wanted


def test_a_changed_letter_is_never_another_score(written, monkeypatch):
    """In each file of texts, where a flipped bit makes another word and no other fault."""
    monkeypatch.chdir(written)
    for ending in TABLES:
        path = Path(f"best{ending}")
        before = path.read_bytes()
        path.write_bytes(before.replace(b"effusion", b"effusiom", 1))
        code, out, err = run(f"score ex/test.csv {path} -m bleu")
        path.write_bytes(before)
        assert (code, out) == (2, "")
        assert f"{path} was changed after it was written" in err or f"{path} is not a whole Parquet file" in err


def test_a_file_of_ones_own_is_read(written, tmp_path, monkeypatch):
    """Edited, and without the signature; or put into the place of ours, which the message says how to read."""
    monkeypatch.chdir(tmp_path)
    for name in ("best.csv", "best.csv.signature.json", "w.json"):
        shutil.copy(written / name, name)
    text = Path("best.csv").read_text().replace("effusion", "fluid")
    Path("mine.csv").write_text(text)
    Path("best.csv").write_text(text)
    score = "score {}/ex/test.csv {} -m bleu"
    wanted = run(score.format(written, "mine.csv"))
    assert wanted[0] == 0
    with pytest.raises(
        InputError, match=r"best\.csv was changed after it was written: its checksum is not the one in "
    ):
        mo.score(written / "ex/test.csv", "best.csv", "bleu")
    Path("best.csv.signature.json").unlink()
    assert run(score.format(written, "best.csv"))[1] == wanted[1]

    weights = json.loads(Path("w.json").read_text())
    weights["terms"]["bleu-2"]["weight"] += 1
    Path("w.json").write_text(json.dumps(weights))
    composite = f"retrieve {written}/INDEX {written}/ex/test.csv -m composite --weights w.json"
    code, _, err = run(composite)
    assert (
        code,
        "w.json was changed after oracle fit-composite wrote it. Fit it again, or delete its field" in err,
    ) == (
        2,
        True,
    )
    del weights["signature_sha256"]
    Path("w.json").write_text(json.dumps(weights))
    assert run(composite)[0] == 0


def test_a_parquet_file_of_ones_own_is_read(written, tmp_path):
    """pandas and Polars drop our metadata; Arrow keeps them, which the message says."""
    table = parquet.read_table(written / "best.parquet")
    texts = pa.array(["a b c"] * table.num_rows)
    changed = table.set_column(table.column_names.index("report"), "report", texts)
    parquet.write_table(changed, tmp_path / "a.parquet")
    with pytest.raises(InputError, match=r"a\.parquet was changed after it was written: .* without the metadata"):
        mo.score(written / "ex/test.csv", tmp_path / "a.parquet", "bleu")
    parquet.write_table(changed.replace_schema_metadata(None), tmp_path / "a.parquet")
    assert mo.score(written / "ex/test.csv", tmp_path / "a.parquet", "bleu").mean()["bleu-2"] < 0.1


@pytest.mark.parametrize("name", ["links.json", "key.json"])
def test_a_survey_of_an_earlier_version_has_no_checksum(written, tmp_path, name):
    folder = tmp_path / "SV"
    shutil.copytree(written / "SV", folder)
    content = json.loads((folder / name).read_text())
    del content["signature_sha256"]
    (folder / name).write_text(json.dumps(content))
    if name == "links.json":
        assert {*open_survey(folder).links()} == {"anna", "ben"}
        del content["anna"]
        match = r"links\.json lacks a rater: anna\. Restore it from a backup"
    else:
        mo.export_survey(folder, tmp_path / "EX")
        del content["studies"][0]["positions"]
        match = r"key\.json is damaged\. Restore it from a backup of the folder\."
    (folder / name).write_text(json.dumps(content))
    with pytest.raises(InputError, match=match):
        open_survey(folder).links() if name == "links.json" else mo.export_survey(folder, tmp_path / "EX2")


def test_damaged_links_of_a_survey(written, tmp_path):
    folder, said = tmp_path / "SV", set()
    shutil.copytree(written / "SV", folder)
    before, wanted = (folder / "links.json").read_bytes(), open_survey(folder).links()
    for number in range(40):
        (folder / "links.json").write_bytes(flipped(before, number)[0])
        try:
            links = open_survey(folder).links()
        except InputError as error:
            said.add(re.search(r"links\.json (\w+ \w+) .* Restore it", str(error))[1])
        else:
            assert links == wanted
    assert said == {"was changed", "is missing"}
    (folder / "links.json").unlink()
    with pytest.raises(InputError, match=r"links\.json is missing or not readable\. Restore it"):
        open_survey(folder).links()


def test_damaged_steps_of_a_study(written, tmp_path, monkeypatch):
    monkeypatch.chdir(written)
    given = (mo.open_index("INDEX"), "ex/test.csv", {"S": "ex/strong.csv"})
    wanted = [row.mean() for row in mo.study(*given, metrics="bleu", out=tmp_path / "st").values()]
    steps = tmp_path / "st.unfinished/steps.json"
    before, refused = steps.read_bytes(), 0
    for number in range(12):
        steps.write_bytes(flipped(before, number)[0])
        try:
            again = [row.mean() for row in mo.study(*given, metrics="bleu", out=tmp_path / "st").values()]
        except InputError as error:
            reason = "st.unfinished was not left by an earlier run of `mo.study`: its steps.json cannot be read"
            refused += reason in str(error)
        else:
            assert again == wanted
        steps.write_bytes(before)
    assert refused > 9


def test_damaged_blocks_of_mined_pairs(written, tmp_path, monkeypatch):
    index, path = mo.open_index(written / "INDEX"), tmp_path / "m.parquet"

    def stop(*_):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(mining, "_join_blocks", stop)
        with pytest.raises(KeyboardInterrupt):
            mo.mine(index, "bleu", path)
    work = tmp_path / ".m.parquet.unfinished"
    (block,) = work.glob("*.parquet")
    table = parquet.read_table(block)
    changed = table.set_column(table.column_names.index("score"), "score", pa.array([0.5] * table.num_rows))
    parquet.write_table(changed, block, write_page_checksum=True)
    with monkeypatch.context() as patch:
        patch.setattr(mining, "_join_blocks", stop)
        with pytest.raises(KeyboardInterrupt):
            mo.mine(index, "bleu", path)
    assert parquet.read_table(block).equals(table)
    search = work / "search.json"
    before = search.read_bytes()
    search.write_bytes(before.replace(b'"made_of": "', b'"made_of": "0', 1))
    match = r"unfinished was not left by an earlier run of `mo\.mine`: its search\.json cannot be read\. Move"
    with pytest.raises(InputError, match=match):
        mo.mine(index, "bleu", path)
    search.write_bytes(before)
    (work / "thesis.txt").write_text("precious")
    with pytest.raises(
        InputError, match=r"unfinished was not left by an earlier run of `mo\.mine`: it holds thesis\.txt\. Move it, or"
    ):
        mo.mine(index, "bleu", path)
    (work / "thesis.txt").unlink()
    mo.mine(index, "bleu", path)
    assert not work.exists()


def test_a_changed_file_of_ours_is_not_read_in_pieces(written, tmp_path):
    """Large files are; the checksum of this one is that of the whole table."""
    table = parquet.read_table(written / "best.parquet")
    texts = pa.array(["a b c"] * table.num_rows)
    changed = table.set_column(table.column_names.index("report"), "report", texts)
    parquet.write_table(changed, tmp_path / "a.parquet")
    with pytest.raises(InputError, match=r"a\.parquet was changed after it was written: "):
        mo.build_index(tmp_path / "a.parquet", tmp_path / "I", metrics="bleu", shard_rows=5)
    assert mo.build_index(written / "best.parquet", tmp_path / "I", metrics="bleu", shard_rows=5).n_shards == 5


# Several writers of one name


def results_of(written):
    index = mo.open_index(written / "INDEX")
    return [mo.retrieve(index, written / "ex/test.csv", metric, k=k) for metric, k in (("bleu", 40), ("rouge-l", 30))]


@pytest.mark.parametrize("ending", TABLES)
def test_threads_that_write_one_file(written, tmp_path, ending):
    found, path, failed = results_of(written), tmp_path / f"x{ending}", []

    def write(results):
        try:
            for _ in range(5):
                results.write(path)
        except BaseException as error:
            failed.append(error)

    for _ in range(3):
        threads = [threading.Thread(target=write, args=(results,)) for results in found * 2]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        again = mo.read_results(path)
        wanted = next(one for one in found if one.signature["metric"] == again.signature["metric"])
        assert again.table["score"].to_pylist() == wanted.table["score"].to_pylist()
    assert failed == []
    assert sorted(os.listdir(tmp_path)) == sorted(
        {path.name, checksum.signature_path(path).name} if ending != ".parquet" else {path.name}
    )


def test_processes_that_write_one_file(written, tmp_path, monkeypatch):
    """Two containers that share a folder may give two processes the same id."""
    monkeypatch.setattr(os, "getpid", lambda: 7)
    found, path = results_of(written), tmp_path / "x.csv"
    for _ in range(8):
        children = []
        for results in found * 2:
            child = os.fork()
            if child == 0:
                code = 1
                try:
                    results.write(path)
                    code = 0
                finally:
                    os._exit(code)
            children.append(child)
        assert [os.waitpid(child, 0)[1] for child in children] == [0] * 4
        assert mo.read_results(path).signature["metric"] in ("bleu-2", "rouge-l")
    assert sorted(os.listdir(tmp_path)) == ["x.csv", "x.csv.signature.json"]


def test_a_kill_between_the_renames_of_a_table(written, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    table = ["table", f"a={written}/strong.parquet", "--quiet", "--out", "t.csv", "--resamples"]
    assert run(shlex.join([*table, "200"]))[0] == 0
    old = Path("t.csv").read_bytes()
    assert signalled(signal.SIGKILL, "os.rename", "t.csv", *table, "300").returncode == -9
    assert Path("t.csv").read_bytes() == old
    checksum.check_unaltered(Path("t.csv"))
    assert json.loads(Path("t.csv.signature.json").read_text())["interval"]["resamples"] == 200
    assert run(shlex.join([*table, "300"]))[0] == 0
    assert json.loads(Path("t.csv.signature.json").read_text())["interval"]["resamples"] == 300
    assert sorted(os.listdir()) == ["t.csv", "t.csv.signature.json"]


def test_no_temporary_file_stays_at_a_signal(written, tmp_path):
    done = signalled(
        signal.SIGTERM, "os.rename", "/build.json", "build-index", f"{written}/ex/train.csv", "--out", f"{tmp_path}/I"
    )
    assert done.returncode == 143
    assert [*tmp_path.rglob("*.tmp")] == []


# Files that are not ours


@pytest.mark.parametrize(
    ("line", "name"),
    [
        ("score {0}/ex/test.csv {0}/ex/strong.csv -m bleu --out {1}", "mine.csv"),
        ("score {0}/ex/test.csv {0}/ex/strong.csv -m bleu --out {1}", "mine.parquet"),
        ("table a={0}/strong.parquet --resamples 200 --out {1}", "mine.md"),
        ("table a={0}/strong.parquet --resamples 200 --out {1}", "mine.tex"),
        ("table a={0}/strong.parquet --resamples 200 --plot {1}", "mine.png"),
        ("table a={0}/strong.parquet --resamples 200 --plot {1}", "mine.svg"),
        ("table a={0}/strong.parquet --resamples 200 --plot {1}", "mine.pdf"),
        ("report {0}/r.csv --queries {0}/ex/test.csv --index {0}/INDEX --out {1}", "mine.html"),
        ("fit-composite {0}/EX/ratings.csv --scores {0}/EX/scores.csv -m bleu,rouge-l --out {1}", "mine.json"),
        ("pairs {0}/mined.parquet --shape trec --index {0}/INDEX --out {1}", "mine.txt"),
        ("pairs {0}/mined.parquet --shape labeled-pair --index {0}/INDEX --out {1}", "mine.parquet"),
    ],
)
def test_out_replaces_only_what_this_tool_wrote(written, tmp_path, monkeypatch, line, name):
    monkeypatch.chdir(tmp_path)
    line = line.format(written, name)
    Path(name).write_text("a thesis that cites metric-oracle\n")
    code, out, err = run(line)
    assert (code, out) == (2, "")
    argument = "plot" if "--plot" in line else "out"
    assert f"{argument} must be a new name, or a file that metric-oracle wrote; got {name}, another file. Name" in err
    assert Path(name).read_text() == "a thesis that cites metric-oracle\n"
    Path(name).unlink()
    assert run(line)[0] == 0
    first = Path(name).read_bytes()
    assert run(line)[0] == 0  # what it wrote itself
    assert Path(name).read_bytes() == first or name.endswith(".svg")  # whose ids are random


@pytest.mark.parametrize(
    ("typed", "shown"),
    [("results/2025-11-25/strong.csv", "'results/2025-11-25/strong.csv'"), ("'no edema'", "'no edema'")],
)
def test_a_usage_error_names_the_file_that_was_typed(typed, shown):
    code, out, err = run(f"retrieve INDEX test.csv -m bleu -k {typed}")
    assert (code, out) == (2, "")
    assert f"; got {shown}. See" in err
