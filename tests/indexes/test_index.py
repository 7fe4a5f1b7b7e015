import errno
import hashlib
import io
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import threading
import time
from contextlib import suppress
from dataclasses import fields
from pathlib import Path

import numpy as np
import pytest

import metric_oracle as mo
from metric_oracle.base import checksum, job
from metric_oracle.base.errors import BackendError, DamagedIndexError, IndexFormatError, InputError
from metric_oracle.base.validation import public
from metric_oracle.corpora.reports import Reports, read_reports
from metric_oracle.indexes import build as index_module
from metric_oracle.indexes import features, manifest
from metric_oracle.indexes.ngrams import TOKENIZERS, build_ngrams
from metric_oracle.indexes.shards import open_index
from metric_oracle.indexes.store import Strings, check_ids, read_arrays
from metric_oracle.kernels import _build
from metric_oracle.metrics import get_metric
from metric_oracle.retrieval.building import build_index
from metric_oracle.retrieval.plan import retrieve
from metric_oracle.scores.scoring import score
from metric_oracle.sources.attaching import attach_sources
from metric_oracle.sources.contract import Attachment
from support import HANG
from support.calls import Calls
from support.inputs import changed
from support.power import Power, kinds_of

PARTS = ["reports", "ngrams", "coco", "words", "temporal", "radgraph", "chexbert", "labels"]


@pytest.fixture(scope="module")
def inputs(corpus):
    """Return the corpus with all that belongs to it."""
    reports = read_reports(corpus["train"])
    return attach_sources(
        reports,
        radgraph=corpus["train_graphs"],
        chexbert=corpus["train_embeddings"] if "chexbert" in PARTS else None,
        chexbert_labels=corpus["train_labels"],
        uncertain="positive",
    )


@pytest.fixture(scope="module")
def built(inputs, tmp_path_factory):
    """Return an index that no test may change."""
    return index_module.build_index(inputs, tmp_path_factory.mktemp("built") / "I")


@pytest.fixture
def copied(built, tmp_path):
    """Return a copy of the index."""
    return Path(shutil.copytree(built.folder, tmp_path / "I"))


def plain(ids, texts):
    return Reports(list(ids), list(texts))


def everything(folder):
    """Return the content of all files under a folder."""
    return {p.relative_to(folder).as_posix(): p.read_bytes() for p in sorted(folder.rglob("*")) if p.is_file()}


# Round trip


def test_round_trip(inputs, built):
    again = open_index(built.folder)
    assert again.fingerprint == built.fingerprint
    assert again.n_reports == len(inputs.ids)
    assert again.reports["study_id"].to_pylist() == inputs.ids
    assert again.reports["text"].to_pylist() == inputs.texts
    distinct = again.distinct.to_pylist()
    assert [d["text"] for d in distinct] == list(dict.fromkeys(inputs.texts))
    assert all(inputs.texts.index(d["text"]) == d["first_row"] for d in distinct)
    assert all(inputs.texts.count(d["text"]) == d["multiplicity"] for d in distinct)
    assert "chexbert:labels" in again.metrics
    again.verify_files()


def test_an_index_holds_what_the_manifest_names_and_nothing_else(built):
    names = set(everything(built.folder))
    assert names == {*built.content["files"], "manifest.json", "stamps.json"}
    assert os.listdir(built.folder.parent) == ["I"]


def test_equal_inputs_make_equal_files(inputs, built, tmp_path):
    again = index_module.build_index(inputs, tmp_path / "other")
    assert again.fingerprint == built.fingerprint
    assert again.content["files"] == built.content["files"]


@pytest.mark.parametrize("at_once", [1, 50, 1000])
def test_posting_lists_inverted_in_ranges_make_equal_files(inputs, built, tmp_path, monkeypatch, at_once):
    monkeypatch.setattr(features, "AT_ONCE", at_once)
    seen: list[int] = []
    invert_lists = _build.invert_lists

    def noting(*arguments):
        seen.append(len(found := invert_lists(*arguments)))
        return found

    monkeypatch.setattr(_build, "invert_lists", noting)
    again = index_module.build_index(inputs, tmp_path / "I", metrics=["bleu", "rouge-l", "radgraph"])
    for kind in ("ngrams", "words", "radgraph"):
        files = everything(again.folder / kind)
        assert files == everything(built.folder / kind)
    longest = max(np.diff(again.part(kind).features.post_ptr).max() for kind in ("ngrams", "words", "radgraph"))
    assert len(seen) > 3
    assert max(seen) <= max(at_once, longest)
    assert sum(seen) == sum(len(again.part(kind).features.fwd_id) for kind in ("ngrams", "words", "radgraph"))


def test_ids_and_texts_of_any_form_come_back(tmp_path):
    ids = ["", " a", "a,b", 'q"', "new\nline", "\u202e", "\x1b[31m", "[red]", "\u2028", "é" * 300]
    texts = ["", " ", "\x00", "\r\n", "a\u2028b", "\x85", "[bold]x[/]", "'", "日本", "ok"]
    index = index_module.build_index(plain(ids, texts), tmp_path / "I")
    assert index.reports["study_id"].to_pylist() == ids
    assert index.reports["text"].to_pylist() == texts


def test_progress_names_the_parts(inputs, tmp_path):
    named = Calls()
    index_module.build_index(inputs, tmp_path / "I", progress=named)
    assert named.steps == PARTS


def test_chosen_metrics_only(inputs, tmp_path):
    index = index_module.build_index(inputs, tmp_path / "I", metrics=["rouge-l", "bleu"])
    assert list(index.content["representations"]) == ["ngrams", "words"]


# Opening


def test_opening_reads_no_data_file(built, monkeypatch):
    monkeypatch.setattr(manifest.IndexFiles, "_compare_checksum", lambda *_: pytest.fail("read"))
    monkeypatch.setattr(index_module.Index, "_read_undamaged", lambda *_: pytest.fail("read"))
    open_index(built.folder)


def test_a_copied_index_is_checked_once(copied, monkeypatch):
    read, compare = [], manifest.IndexFiles._compare_checksum
    monkeypatch.setattr(
        manifest.IndexFiles, "_compare_checksum", lambda self, name: read.append(name) or compare(self, name)
    )
    for path in copied.rglob("*.arrow"):
        os.utime(path, ns=(1, 1))
    for _ in range(2):
        retrieve(open_index(copied), ["No effusion."], "bleu")
        assert sorted(read) == ["ngrams/features.arrow", "reports.arrow"]  # what the search uses


def test_index_that_another_takes_the_place_of(inputs, built, copied, tmp_path):
    queries = ["No acute process.", *inputs.texts[:3]]
    wanted = retrieve(built, queries, "bleu", k=5)
    index = open_index(copied)
    copied.rename(tmp_path / "old")
    other = plain(inputs.ids, inputs.texts[::-1])
    assert index_module.build_index(other, copied).fingerprint != built.fingerprint
    shutil.rmtree(tmp_path / "old")
    found = retrieve(index, queries, "bleu", k=5)
    assert found.table.equals(wanted.table)
    assert found.signature == wanted.signature
    assert retrieve(copied, queries, "bleu", k=5).table["row"] != wanted.table["row"]


def test_offsets_that_lead_out_of_their_arrays(copied):
    # Damage that keeps size and time is seen by verify_files alone; what would crash a search is seen anyway.
    seen = set()
    for name, metric in (("words/features.arrow", "rouge-l"), ("radgraph/graphs.arrow", "radgraph")):
        path = copied / name
        stat, whole = path.stat(), path.read_bytes()
        arrays = manifest.map_file(path)
        for column, values in read_arrays(arrays).items():
            if not column.endswith("ptr"):
                continue
            start = values.ctypes.data - np.frombuffer(arrays, np.uint8).ctypes.data
            for place in (0, len(values) // 2, len(values) - 1):
                damaged = bytearray(whole)
                damaged[start + 8 * place + 6] ^= 0x10
                path.write_bytes(damaged)
                os.utime(path, ns=(stat.st_atime_ns, stat.st_mtime_ns))
                match = rf"^{name.split('/')[0]} must be unchanged since the index was built; got a damaged file"
                with pytest.raises(IndexFormatError, match=match):
                    open_index(copied).representation(get_metric(metric))
                seen.add(column)
        path.write_bytes(whole)
        os.utime(path, ns=(stat.st_atime_ns, stat.st_mtime_ns))
    assert {"post_ptr", "fwd_ptr", "row_ptr", "sequence_ptr", "family_ptr"} <= seen


DAMAGED = """
import os, sys
import numpy as np
import metric_oracle as mo
from metric_oracle.base.errors import ExactnessError, IndexFormatError
from metric_oracle.indexes.store import map_file, read_arrays
folder, name, metric, corpus, graphs = sys.argv[1:]
path = f"{folder}/{name}"
stat, whole = os.stat(path), open(path, "rb").read()
queries = mo.reports(corpus, radgraph=graphs).load()
arrays = read_arrays(mapped := map_file(__import__("pathlib").Path(path)))
start = np.frombuffer(mapped, np.uint8).ctypes.data
rng = np.random.default_rng(0)
for column, values in arrays.items():
    if not isinstance(values, np.ndarray) or not values.size:
        continue
    first, lines = values.ctypes.data - start, 0
    for place in rng.integers(values.nbytes, size=8):
        damaged = bytearray(whole)
        damaged[first + place] ^= 1 << rng.integers(8)
        with open(path, "wb") as file:
            file.write(damaged)
        os.utime(path, ns=(stat.st_atime_ns, stat.st_mtime_ns))
        try:
            mo.retrieve(folder, queries, metric, k=5)
        except IndexFormatError as error:
            assert "must be unchanged since the index was built; got a damaged file" in str(error)
            lines += 1
        except ExactnessError:  # a line too: the search's own checks saw it
            lines += 1
    print(column, lines)
"""


@pytest.mark.parametrize(
    ("name", "metric"),
    [
        ("words/features.arrow", "rouge-l"),
        ("radgraph/graphs.arrow", "radgraph"),
        ("radgraph/postings.arrow", "radgraph"),
        ("coco/features.arrow", "cider-d"),
    ],
)
def test_bits_of_arrays_are_an_answer_or_a_line(copied, corpus, name, metric):
    # In a process of its own, which must not crash: compiled code trusts ids.
    given = [copied, name, metric, corpus["test"], corpus["test_graphs"]]
    done = subprocess.run([sys.executable, "-c", DAMAGED, *map(str, given)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-2000:]
    lines = dict(line.split() for line in done.stdout.splitlines())
    assert {column for column, n in lines.items() if int(n) >= 4} & {"sequence", "row_id", "fwd_id", "post_unit"}


def test_ids_out_of_range():
    ids = np.array([[0, 3], [2, 1]], np.int32)
    check_ids(ids, 4)
    check_ids(ids - 1, 3, -1)
    check_ids(np.empty(0, np.int64), 0)
    for wrong, end, first in ((ids, 3, 0), (ids - 1, 4, 0), (ids - 2, 4, -1), (ids, 3, -1), (ids.astype("u2"), 3, 0)):
        with pytest.raises(ValueError, match=r"^numbers of what is not there$"):
            check_ids(wrong, end, first)


def test_features_of_unlike_lengths(built):
    whole = built.representation(get_metric("rouge-l")).features._asdict()
    features.load_features(dict(whole))
    shorter = {
        "sizes": whole["sizes"][:, 1:],
        "row_ptr": np.delete(whole["row_ptr"], 1),
        "skip_slot": whole["skip_slot"][1:],
        "fwd_id": np.r_[whole["fwd_id"], 0],
    }
    for name, values in shorter.items():
        damaged = {**whole, name: values}
        if name == "fwd_id":  # as many as its offsets say
            damaged["fwd_ptr"] = np.r_[whole["fwd_ptr"][:-1], whole["fwd_ptr"][-1] + 1]
        with pytest.raises(ValueError, match=r"^arrays of unlike lengths$"):
            features.load_features(damaged)


def test_sizes_that_are_others(built, monkeypatch):
    words = built.representation(get_metric("rouge-l"))
    whole = words.features._asdict()
    more = whole["sizes"].copy()
    more[0, 0] += 1
    for sizes in (more, whole["sizes"][:, ::-1]):  # the latter in sum the same
        with pytest.raises(ValueError, match=r"^sizes that differ from the lengths of the lists$"):
            features.load_features({**whole, "sizes": sizes})
    columns = {f.name: getattr(words, f.name) for f in fields(words) if f.name not in ("kind", "features")}
    place = int(np.argmax(np.diff(columns["sequence_ptr"]) > 0)) + 1
    moved = columns["sequence_ptr"].copy()
    moved[place] -= 1
    monkeypatch.setattr("metric_oracle.indexes.ngrams.read_arrays", dict)
    type(words).load("words", {"features.arrow": {**whole, **columns}})
    with pytest.raises(ValueError, match=r"^sizes that differ from the lengths of the sequences$"):
        type(words).load("words", {"features.arrow": {**whole, **columns, "sequence_ptr": moved}})


@pytest.mark.parametrize("name", ["reports.arrow", "words/features.arrow", "radgraph/graphs.arrow"])
def test_bits_of_arrow_are_an_index_or_a_line(copied, name):
    path = copied / name
    stat = path.stat()
    whole = path.read_bytes()
    lines = 0
    for place in [*range(0, 300, 3), *range(len(whole) - 300, len(whole), 3)]:
        path.write_bytes(whole[:place] + bytes([whole[place] ^ 1 << place % 8]) + whole[place + 1 :])
        os.utime(path, ns=(stat.st_atime_ns, stat.st_mtime_ns))
        index = open_index(copied)
        try:
            if name == "reports.arrow":
                index.reports["study_id"].to_pylist()
            else:
                index.representation(get_metric({"words": "rouge-l"}.get(name.split("/")[0], "radgraph")))
        except IndexFormatError:
            lines += 1
        with pytest.raises(IndexFormatError, match="does not have its checksum"):
            index.verify_files()
    assert lines > 20


def test_read_only_folder_opens(built, open_folder, request):
    folder = Path(shutil.copytree(built.folder, open_folder / "I"))
    for path in [folder, *folder.rglob("*")]:
        os.utime(path, ns=(1, 1))
        path.chmod(0o555 if path.is_dir() else 0o444)
    before = everything(folder)
    retrieve(built, ["No effusion."], "bleu")  # compiled kernels lie in folders of the first user
    request.getfixturevalue("unprivileged")
    with pytest.raises(PermissionError):
        (folder / "x").write_text("")
    index = open_index(folder)
    assert retrieve(index, ["No effusion."], "bleu").table.num_rows == 1
    assert everything(folder) == before


def use_all(index):
    """Use every file of an index that these tests build."""
    assert index.reports.num_rows
    assert index.distinct.num_rows
    for name in index.metrics:
        index.representation(get_metric(name))


@pytest.mark.parametrize("name", ["reports.arrow", "distinct.arrow", "ngrams/features.arrow", "labels/labels.arrow"])
def test_damaged_files_are_named(copied, name):
    path = copied / name
    whole = path.read_bytes()
    cases = [
        (whole[:-1], f"open_index: {name} must have {len(whole)} bytes; got {len(whole) - 1} in "),
        (b"", f"open_index: {name} must have {len(whole)} bytes; got 0 in "),
        (
            whole[:100] + bytes([whole[100] ^ 1]) + whole[101:],
            f"{name} in {copied} does not have its checksum in manifest.json: the file was altered.",
        ),
    ]
    for content, text in cases:
        path.write_bytes(content)
        os.utime(path, ns=(1, 1))
        with pytest.raises(IndexFormatError, match="^" + re.escape(text)):
            use_all(open_index(copied))
    path.unlink()
    with pytest.raises(IndexFormatError, match=rf"^open_index: {name} must be in the index; got no such file in"):
        open_index(copied)


def test_byte_altered_behind_an_equal_time_is_found_by_verify_files(copied):
    path = copied / "reports.arrow"
    stat, content = path.stat(), bytearray(path.read_bytes())
    content[-20] ^= 1
    path.write_bytes(content)
    os.utime(path, ns=(stat.st_atime_ns, stat.st_mtime_ns))
    index = open_index(copied)
    with pytest.raises(IndexFormatError, match=r"^reports.arrow in .* does not have its checksum in manifest.json"):
        index.verify_files()


def test_metric_that_the_index_lacks(inputs, tmp_path):
    index = index_module.build_index(inputs, tmp_path / "I", metrics=["rouge-l"])
    match = (
        r"^metric must be one of rouge-l, .*jaccard:4 \(what .*I holds\); got 'radgraph'\. "
        r"Build an index with `metrics='radgraph'` and `mo\.reports\(\.\.\., radgraph=GRAPHS\.json\)`\.$"
    )
    with pytest.raises(InputError, match=match):
        index.representation(get_metric("radgraph"))
    with pytest.raises(InputError, match=r"got 'bleu-2'\. Build an index with `metrics='bleu-2'`\.$"):
        index.representation(get_metric("bleu"))


def test_faiss_is_needed_by_those_alone_who_ask_for_it(inputs, tmp_path, monkeypatch):
    embeddings = np.eye(len(inputs.ids), dtype=np.float32)
    rows = np.arange(len(inputs.ids))
    given = Reports(inputs.ids, inputs.texts, attached={"chexbert": Attachment(embeddings, rows)})
    monkeypatch.setitem(sys.modules, "faiss", None)
    index = index_module.build_index(given, tmp_path / "I", metrics=["chexbert"])
    with pytest.raises(BackendError, match=r"^an index of vectors needs the Python package faiss, "):
        index.faiss("chexbert")


def test_faiss_of_a_representation(inputs, built):
    faiss = pytest.importorskip("faiss")
    whole = built.faiss("chexbert")
    assert isinstance(whole, faiss.IndexFlatIP)
    np.testing.assert_array_equal(whole.reconstruct_n(0, whole.ntotal), built.part("chexbert").vectors)
    match = r"^name must be one of chexbert, labels \(the vectors that .*I holds\); got 'ngrams'\. Build an"
    with pytest.raises(InputError, match=match):
        built.faiss("ngrams")


# Refusals


@pytest.mark.parametrize("make", ["file", "folder", "index", "link"])
def test_out_exists(built, tmp_path, make):
    out = tmp_path / "I"
    if make == "file":
        out.write_text("mine")
    elif make == "folder":
        (out / "sub").mkdir(parents=True)
    elif make == "index":
        shutil.copytree(built.folder, out)
    else:
        out.symlink_to(tmp_path / "nowhere")
    before = everything(tmp_path)
    match = rf"^out must be a new folder; got {out}, which exists\. Remove it or name another\.$"
    with pytest.raises(InputError, match=match):
        index_module.build_index(plain("ab", "cd"), out)
    assert everything(tmp_path) == before
    assert os.listdir(tmp_path) == ["I"]


@pytest.mark.parametrize(
    ("name", "make"),
    [
        ("mine.arrow", "file"),
        ("photo.jpg", "file"),
        ("ngrams/mine", "file"),
        ("ngrams/mine.arrow", "file"),
        ("encoding/thesis.txt", "file"),
        ("folder", "folder"),
        ("ngrams/folder", "folder"),
        ("ngrams", "link"),
        ("encoding", "link"),
        ("reports.arrow", "link"),
        (".lock", "link"),
        ("reports.arrow", "folder"),
        ("build.json", "pipe"),
    ],
)
@pytest.mark.parametrize("locked", [True, False])
def test_foreign_files_in_the_place_of_the_build(tmp_path, name, make, locked):
    building = tmp_path / "I.building"
    (tmp_path / "precious").mkdir()
    (tmp_path / "precious/features.arrow").write_text("mine")
    path = building / name
    path.parent.mkdir(parents=True)
    if locked and name != ".lock":
        (building / ".lock").touch()
    if make == "file":
        path.write_text("mine")
    elif make == "folder":
        path.mkdir()
    elif make == "pipe":
        os.mkfifo(path)
    else:
        path.symlink_to(tmp_path / "precious", target_is_directory=True)
    before = everything(tmp_path)
    match = rf"^{building} must be what an earlier build left; got one with {name}\. Move it, or name anothe"
    with pytest.raises(InputError, match=match):
        index_module.build_index(plain("ab", "cd"), tmp_path / "I")
    assert everything(tmp_path) == before
    assert sorted(os.listdir(tmp_path)) == ["I.building", "precious"]


def test_folder_of_parts_without_a_lock_in_the_place_of_the_build(tmp_path):
    (tmp_path / "I.building/ngrams").mkdir(parents=True)
    (tmp_path / "I.building/ngrams/features.arrow").write_text("mine")
    with pytest.raises(InputError, match=r"what an earlier build left; got one without \.lock\. Move it, or name"):
        index_module.build_index(plain("ab", "cd"), tmp_path / "I")
    assert (tmp_path / "I.building/ngrams/features.arrow").read_text() == "mine"


def test_link_in_the_place_of_the_build(tmp_path):
    (tmp_path / "precious").mkdir()
    (tmp_path / "I.building").symlink_to(tmp_path / "precious", target_is_directory=True)
    with pytest.raises(InputError, match=r"^.*I.building must be what an earlier .*; got a link\."):
        index_module.build_index(plain("ab", "cd"), tmp_path / "I")
    assert not os.listdir(tmp_path / "precious")


def test_file_in_the_place_of_the_build(tmp_path):
    (tmp_path / "I.building").write_text("mine")
    with pytest.raises(InputError, match=r"^out must be a folder that can be written; got .*I \(File exists\)"):
        index_module.build_index(plain("ab", "cd"), tmp_path / "I")
    assert (tmp_path / "I.building").read_text() == "mine"


def test_out_below_a_file(tmp_path):
    (tmp_path / "a").write_text("mine")
    match = r"^out must be a folder that can be written; got .*a/I \(Not a directory\)\. Repair it and run the s"
    with pytest.raises(InputError, match=match):
        index_module.build_index(plain("ab", "cd"), tmp_path / "a/I")


def test_out_not_in_utf_8(tmp_path):
    with pytest.raises(InputError, match=r"^out must be a name in UTF-8; got .*\. Rename the folder\.$"):
        index_module.build_index(plain("ab", "cd"), tmp_path / "caf\udce9")


def test_no_reports(tmp_path):
    match = r"^reports must be at least one; got 0\. Check the file and the section\.$"
    with pytest.raises(InputError, match=match):
        index_module.build_index(plain("", ""), tmp_path / "I")
    assert not os.listdir(tmp_path)


@pytest.mark.parametrize(
    ("metric", "what", "option"),
    [
        ("radgraph:rg_e", "graphs", "`mo.reports(..., radgraph=GRAPHS.json)`"),
        ("chexbert", "embeddings", "`mo.reports(..., chexbert=FILE)`"),
        ("chexbert:labels", "labels", "`mo.reports(..., chexbert_labels=FILE, uncertain=positive|negative|blank)`"),
    ],
)
def test_metric_without_its_inputs(tmp_path, metric, what, option):
    match = rf"^{what} of the reports must be given for metric '{metric}'; got none\. Add {re.escape(option)}\.$"
    with pytest.raises(InputError, match=match):
        index_module.build_index(plain("ab", "cd"), tmp_path / "I", metrics=["bleu", metric])
    assert not os.listdir(tmp_path)


def test_unknown_metric(tmp_path):
    match = r"^metric must be one of .*; got 'bluu'\. Did you mean 'bleu'\?$"
    with pytest.raises(InputError, match=match):
        index_module.build_index(plain("ab", "cd"), tmp_path / "I", metrics=["bluu"])


def test_graphs_with_too_many_labels(inputs, tmp_path):
    from dataclasses import replace

    graphs = inputs.attached["radgraph"].values
    graphs = replace(graphs, labels=[*graphs.labels, *map(str, range(40))])
    match = r"^graphs must have at most 2\*\*24 entity strings, 32 labels and 16 relation types; got \d+, "
    with pytest.raises(InputError, match=match):
        index_module.build_index(changed(inputs, "radgraph", values=graphs), tmp_path / "I", metrics=["radgraph"])


# Reports


def test_labels_need_a_meaning_of_uncertain(corpus):
    match = r"^build_index: uncertain must be positive, negative or blank where labels are given; got None\."
    with pytest.raises(InputError, match=match):
        build_index(mo.reports(corpus["train"], chexbert_labels=corpus["train_labels"]), "I")
    match = r"^reports: uncertain must be one of positive, negative, blank; got 'maybe'\. Say what an uncertain label"
    with pytest.raises(InputError, match=match):
        mo.reports(corpus["train"], chexbert_labels=corpus["train_labels"], uncertain="maybe")


@pytest.mark.parametrize("uncertain", ["positive", "negative", "blank"])
def test_an_index_says_what_uncertain_counts_as(inputs, tmp_path, uncertain):
    given = changed(inputs, "labels", settings={"uncertain": uncertain})
    index = index_module.build_index(given, tmp_path / "I", metrics=["chexbert:labels"])
    assert index.content["representations"]["labels"]["uncertain"] == uncertain
    assert retrieve(index, given, "chexbert:labels").table.num_rows == len(inputs.ids)


def test_labels_without_ids_go_by_row(corpus, tmp_path):
    labels = tmp_path / "labels.csv"
    lines = corpus["train_labels"].read_text().splitlines()
    labels.write_text("\n".join(line.split(",", 1)[1] for line in lines[:4]))
    given = attach_sources(Reports([*"abc"], [*"abc"]), chexbert_labels=labels, uncertain="blank")
    assert given.attached["labels"].of_row.tolist() == [0, 1, 2]
    match = r"^labels without ids must be as many as the reports, 2; got 3 in .*\. Add a study_id column\.$"
    with pytest.raises(InputError, match=match):
        attach_sources(Reports([*"ab"], [*"ab"]), chexbert_labels=labels, uncertain="blank")


def test_ids_on_one_side_only(corpus):
    match = r"^chexbert_labels must share ids with the reports; got none of 2 report ids among 120 in .*\. Pass the"
    with pytest.raises(InputError, match=match):
        attach_sources(Reports(["1", "2"], ["a", "b"]), chexbert_labels=corpus["train_labels"], uncertain="blank")
    with pytest.raises(InputError, match=r"^chexbert must share ids with the reports; got none of 1 report"):
        attach_sources(Reports(["1"], ["a"]), chexbert=corpus["train_embeddings"])


def test_ids_of_embeddings_that_are_not_given(corpus):
    match = r"^chexbert must be given with `chexbert_ids`; got None\. Add the embeddings of .*train.csv\.$"
    with pytest.raises(InputError, match=match):
        attach_sources(Reports(["1"], ["a"]), chexbert_ids=corpus["train"])


def test_half_a_surrogate_pair(tmp_path):
    match = r"^texts must be valid Unicode; got half of a surrogate pair in that of report '2'\. Repair the"
    with pytest.raises(InputError, match=match):
        attach_sources(Reports(["1", "2"], ["a", "secret \ud800"]))
    with pytest.raises(InputError, match=r"^ids must be valid .* in that of report '\\ud800'\. Repair"):
        attach_sources(Reports(["\ud800"], ["a"]))
    graphs = tmp_path / "g.json"
    entity = {"tokens": "\ud800", "label": "ANAT-DP", "relations": []}
    graphs.write_text(json.dumps({"1": {"text": "a", "entities": {"1": entity}}}))
    with pytest.raises(InputError, match=r"^entities and relations of .*g.json must be valid Unicode; got ha"):
        attach_sources(Reports(["1"], ["a"]), radgraph=graphs)


# Identity


def test_fingerprint_does_not_tell_the_container(corpus, tmp_path):
    import pyarrow as pa
    from pyarrow import parquet

    reports = read_reports(corpus["train"])
    table = pa.table({"study_id": reports.ids, "impression": reports.texts})
    parquet.write_table(table, tmp_path / "train.parquet")
    of_csv = build_index(corpus["train"], tmp_path / "csv")
    of_parquet = build_index(tmp_path / "train.parquet", tmp_path / "parquet")
    assert of_csv.content["source"] != of_parquet.content["source"]
    assert of_csv.fingerprint == of_parquet.fingerprint


def test_fingerprint_does_not_tell_what_follows_from_data(inputs, built, tmp_path):
    fewer = index_module.build_index(plain(inputs.ids, inputs.texts), tmp_path / "bleu", metrics=["bleu"])
    more = index_module.build_index(plain(inputs.ids, inputs.texts), tmp_path / "both", metrics=["bleu", "rouge-l"])
    assert fewer.fingerprint == more.fingerprint
    assert fewer.fingerprint != built.fingerprint  # which has graphs and labels


@pytest.mark.skipif("chexbert" not in PARTS, reason="needs FAISS")
def test_fingerprint_does_not_tell_the_library_that_made_codes(inputs, built, tmp_path, monkeypatch):
    home = index_module.REPRESENTATIONS["chexbert"].load_class()
    write = index_module.write_files

    def other_library(folder, files):
        write(folder, files)
        for name in home.derived_files if folder.name == "chexbert" else ():
            with (folder / name).open("ab") as file:
                file.write(b"other bits")

    monkeypatch.setattr(index_module, "write_files", other_library)
    index = index_module.build_index(inputs, tmp_path / "I")
    assert index.content["files"] != built.content["files"]
    assert index.fingerprint == built.fingerprint


def test_fingerprint_tells_all_data(inputs, built, tmp_path):
    from dataclasses import replace

    others = {
        "text": replace(inputs, texts=["Changed.", *inputs.texts[1:]]),
        "id": replace(inputs, ids=["1", *inputs.ids[1:]]),
        "order": replace(inputs, ids=inputs.ids[::-1], texts=inputs.texts[::-1]),
        "graph": changed(inputs, "radgraph", of_row=inputs.attached["radgraph"].of_row[::-1].copy()),
        "label": changed(inputs, "labels", of_row=inputs.attached["labels"].of_row[::-1].copy()),
        "uncertain": changed(inputs, "labels", settings={"uncertain": "blank"}),
    }
    if "chexbert" in PARTS:
        of_row = inputs.attached["chexbert"].of_row[::-1].copy()
        others["embedding"] = changed(inputs, "chexbert", of_row=of_row)
    found = {name: index_module.build_index(other, tmp_path / name).fingerprint for name, other in others.items()}
    assert len({built.fingerprint, *found.values()}) == len(others) + 1


def test_lists_and_arrow_make_equal_indexes(inputs, tmp_path):
    import pyarrow as pa

    ids, texts = pa.chunked_array([inputs.ids[:7], inputs.ids[7:]]), pa.array(inputs.texts, pa.string())
    of_lists = index_module.build_index(plain(inputs.ids, inputs.texts), tmp_path / "lists")
    of_arrow = index_module.build_index(Reports(Strings(ids), Strings(texts)), tmp_path / "arrow")
    assert of_arrow.content == of_lists.content


@public
def built_of(folder, **columns):
    """Return an index of reports of `Strings`, which the package itself makes of files."""
    return index_module.build_index(Reports(**columns, is_loaded=True), folder)


@pytest.mark.parametrize("name", ["ids", "texts"])
def test_missing_strings(tmp_path, name):
    import pyarrow as pa

    given = {"ids": Strings(["a", "b"]), "texts": Strings(["c", "d"]), name: Strings(pa.array(["x", None]))}
    match = rf"^built_of: {name} must be strings; got 1 missing\. Leave these reports out\.$"
    with pytest.raises(InputError, match=match):
        built_of(tmp_path / "I", **given)
    assert not (tmp_path / "I").exists()


# Features


def features_of(texts, tokenize, max_order):
    """Return the (n-gram, occurrence) pairs of each distinct token sequence, in text order, by the definition alone."""
    found = {}
    for text in texts:
        tokens = tuple(tokenize(text))
        grams = [tokens[i : i + n] for n in range(1, max_order + 1) for i in range(len(tokens) - n + 1)]
        found[tokens] = [(gram, grams[:i].count(gram)) for i, gram in enumerate(grams)]
    return dict(sorted(found.items(), key=lambda item: len(item[0])))  # stable: first appearance among equals


@pytest.mark.parametrize(("kind", "max_order"), [("ngrams", 4), ("coco", 4), ("words", 1)])
def test_features_are_those_of_the_definition(kind, max_order):
    rng = np.random.default_rng(5)
    texts = [" ".join(rng.choice(list("abcd."), n)) for n in rng.integers(0, 9, 300)]
    texts = list(dict.fromkeys([*texts, "", "...", "a a a a a a a a a", "rare words here", "A"]))
    index = build_ngrams(kind, texts, np.arange(len(texts)).repeat(2))
    wanted = features_of(texts, TOKENIZERS[kind], max_order)
    items = [index.item(u) for u in range(len(index.row_ptr) - 1)]
    assert items == list(wanted)
    names = {}  # feature id -> what it stands for
    ptr, ids = index.features.fwd_ptr, index.features.fwd_id
    for u, expected in enumerate(wanted.values()):
        own = ids[ptr[u] : ptr[u + 1]].tolist()
        assert [names.setdefault(f, e) for f, e in zip(own, expected, strict=True)] == expected
    assert sorted(names) == list(range(len(index.features.post_ptr) - 1))
    assert len(set(names.values())) == len(names)
    of_order = [(f, len(gram)) for f, (gram, _) in sorted(names.items())]
    assert of_order == sorted(of_order, key=lambda pair: pair[1])
    for v in range(0, len(names), 7):
        postings = index.features.post_unit[index.features.post_ptr[v] : index.features.post_ptr[v + 1]]
        assert postings.tolist() == [u for u, expected in enumerate(wanted.values()) if names[v] in expected]
    for u, item in enumerate(items):
        rows = [r for i, text in enumerate(texts) if tuple(TOKENIZERS[kind](text)) == item for r in (2 * i, 2 * i + 1)]
        assert index.row_id[index.row_ptr[u] : index.row_ptr[u + 1]].tolist() == rows


@pytest.mark.parametrize("metric", ["rouge-l", "bleu", "radgraph"])
@pytest.mark.parametrize("less", [0, 1, 5, 1000])
def test_more_features_than_ids(inputs, built, tmp_path, monkeypatch, metric, less):
    n = len(built.representation(get_metric(metric)).features.post_ptr) - 1
    monkeypatch.setattr(features, "MOST_FEATURES", max(n - less, 3))
    if less == 0:
        assert index_module.build_index(inputs, tmp_path / "I", metrics=[metric]).metrics
        return
    match = (
        rf"^reports must have at most {max(n - less, 3):,} distinct features \(n-grams, entities, relat"
        r"ions\); got [\d,]+ or more\. Build several indexes of fewer reports\.$"
    )
    with pytest.raises(InputError, match=match):
        index_module.build_index(inputs, tmp_path / "I", metrics=[metric])


def test_vocabulary_is_read_when_a_query_comes(built):
    index = open_index(built.folder)
    opened = index.representation(get_metric("bleu"))
    assert "words" not in vars(opened)
    retrieve(index, ["No effusion."], "bleu")
    assert vars(opened)["words"] == sorted(opened.words)


# Killed builds and full disks


class Killed(BaseException):
    """A death that no handler of the package may take for an error."""


class Disk:
    """Count what a build does to the disk, and fail at the n-th time, half of the bytes written."""

    def __init__(self, monkeypatch, fail_at, error):
        self.fail_at, self.error, self.count = fail_at, error, 0
        for name in ("mkdir", "rename", "replace"):
            monkeypatch.setattr(Path, name, self._wrapped(getattr(Path, name)))
        disk, real_open = self, Path.open

        class File(io.FileIO):
            def write(self, content):
                if disk.is_due():
                    super().write(bytes(content)[: len(content) // 2])
                    raise disk.error
                return super().write(content)

        def opened(path, mode="r", buffering=-1, encoding=None, errors=None, newline=None):
            if "w" not in mode:
                return real_open(path, mode, buffering, encoding, errors, newline)
            if disk.is_due():
                raise disk.error
            file = File(path, "w")
            return file if "b" in mode else io.TextIOWrapper(file, encoding=encoding, write_through=True)

        monkeypatch.setattr(Path, "open", opened)

    def is_due(self):
        self.count += 1
        return self.count == self.fail_at

    def _wrapped(self, function):
        def wrapped(*args, **kwargs):
            if self.is_due():
                raise self.error
            return function(*args, **kwargs)

        return wrapped


@pytest.fixture(scope="module")
def few(inputs, tmp_path_factory):
    """Return the index of one metric for each way to write a part: one file, several, and one that can be derived.

    All parts are written by the same functions, and the time of what follows grows as the square of their number.
    """
    metrics = [m for m in ("rouge-l", "chexbert", "chexbert:labels") if get_metric(m).representation in PARTS]
    return index_module.build_index(inputs, tmp_path_factory.mktemp("few") / "I", metrics=metrics)


def test_full_disk_at_every_write(inputs, few, tmp_path):
    (tmp_path / "mine").write_text("mine")
    for n in range(1, 10_000):
        out = tmp_path / f"I{n}"
        before = everything(tmp_path)
        with pytest.MonkeyPatch.context() as patch:
            disk = Disk(patch, n, OSError(errno.ENOSPC, "No space left on device"))
            said = ""
            try:
                index_module.build_index(inputs, out, metrics=few.metrics)
            except InputError as error:
                said = str(error)
            if disk.count < n:
                break
        if out.exists():  # only the stamps, which nothing needs, found no room
            assert said == ""
            shutil.rmtree(out)
            continue
        assert said == (
            f"out must be a folder that can be written; got {out} (No space left on device). "
            "Make room and run the same command again: finished parts are kept."
        )
        kept = {name: content for name, content in everything(tmp_path).items() if not name.startswith(f"{out.name}.")}
        assert kept == before
        assert index_module.build_index(inputs, out, metrics=few.metrics).fingerprint == few.fingerprint
        assert set(everything(out)) == set(everything(few.folder))
        shutil.rmtree(out)
        assert [path.name for path in tmp_path.iterdir()] == ["mine"]
    assert n > 30


@pytest.mark.parametrize(
    "error",
    [
        FileNotFoundError(errno.ENOENT, "No such file or directory", "/models/gone/model.safetensors"),
        PermissionError(errno.EACCES, "Permission denied", "/data/train.csv"),
        ConnectionError("no network"),
        OSError(errno.EIO, "Input/output error"),
    ],
)
def test_errors_of_other_causes_keep_their_names(tmp_path, monkeypatch, error):
    def fail(*_, **__):
        raise error

    monkeypatch.setattr(index_module, "_write_representation", fail)
    with pytest.raises(type(error)) as caught:
        index_module.build_index(plain("ab", "cd"), tmp_path / "I")
    assert caught.value is error


def test_folder_without_permission(open_folder, request):
    (open_folder / "closed").mkdir(0o555)
    request.getfixturevalue("unprivileged")
    for name in ("closed/I", "closed/a/I"):
        match = rf"^out must be a folder that can be written; got .*{name} \(Permission denied\)\. Repair it"
        with pytest.raises(InputError, match=match):
            index_module.build_index(plain("ab", "cd"), open_folder / name)


def part_of(name):
    """Return the part of an index that a file belongs to."""
    return name.partition("/")[0] if "/" in name else "reports"


def test_killed_at_many_writes(inputs, few, tmp_path):
    out = tmp_path / "I"
    for n in range(1, 10_000, 4):
        with pytest.MonkeyPatch.context() as patch:
            disk = Disk(patch, n, Killed())
            with suppress(Killed):
                index_module.build_index(inputs, out, metrics=few.metrics)
            if disk.count < n:
                break
        if out.exists():
            assert open_index(out).fingerprint == few.fingerprint
        else:
            pieces = job.Job(tmp_path / "I.building", "build.json").pieces
            finished = {part_of(name) for name in pieces} - {
                part_of(name) for name in pieces if not pieces[name].sha256
            }
            named = Calls()
            again = index_module.build_index(inputs, out, metrics=few.metrics, progress=named)
            assert again.fingerprint == few.fingerprint
            assert named.steps == [
                part for part in ("reports", *few.content["representations"]) if part not in finished
            ]
            assert set(everything(out)) == set(everything(few.folder))
        shutil.rmtree(out)
        assert not os.listdir(tmp_path)
    assert n > 30


CHILD = """
import os, signal, sys
import metric_oracle as mo
from metric_oracle.base import job
stop = sys.argv[1]
write_sealed = job.write_sealed
def killed(path, content):
    write_sealed(path, content)
    if path.name == "build.json" and any(of["sha256"] for name, of in content.items() if name.startswith(stop)):
        os.kill(os.getpid(), signal.SIGKILL)
job.write_sealed = killed
print("ready", flush=True)
reports = mo.reports(sys.argv[2], radgraph=sys.argv[4], chexbert_labels=sys.argv[5], uncertain="positive")
mo.build_index(reports, sys.argv[3])
"""


def child(corpus, out, stop):
    files = (corpus["train"], out, corpus["train_graphs"], corpus["train_labels"])
    command = [sys.executable, "-c", CHILD, stop, *map(str, files)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)


def resume(corpus, out):
    """Finish a build and return the index and the parts that were built."""
    named = Calls()
    graphs, labels = corpus["train_graphs"], corpus["train_labels"]
    index = build_index(
        mo.reports(corpus["train"], radgraph=graphs, chexbert_labels=labels, uncertain="positive"),
        out,
        progress=named,
    )
    return index, named.steps


def test_sigkill_after_a_part(corpus, tmp_path):
    wanted = resume(corpus, tmp_path / "whole")[0].fingerprint
    parts = [part for part in PARTS if part != "chexbert"]
    processes = {part: child(corpus, tmp_path / part, part) for part in ("reports", "radgraph")}
    for part, process in processes.items():
        process.communicate()
        assert process.returncode == -signal.SIGKILL
        with pytest.raises(IndexFormatError, match=r"^open_index: index must be finished; got"):
            open_index(tmp_path / f"{part}.building")
        index, named = resume(corpus, tmp_path / part)
        assert index.fingerprint == wanted
        assert named == parts[parts.index(part) + 1 :]
    assert sorted(os.listdir(tmp_path)) == ["radgraph", "reports", "whole"]


def test_sigkill_at_some_moment(corpus, tmp_path):
    wanted = resume(corpus, tmp_path / "whole")[0].fingerprint
    for n, seconds in enumerate((0.005, 0.03, 0.08)):
        process = child(corpus, tmp_path / str(n), "never")
        process.stdout.readline()
        time.sleep(seconds)
        process.kill()
        process.communicate()
        if not (tmp_path / str(n)).exists():
            assert resume(corpus, tmp_path / str(n))[0].fingerprint == wanted
        open_index(tmp_path / str(n)).verify_files()


def killed_build(inputs, out, **arguments):
    """Kill a build before the manifest."""

    def die(path, content):
        if path.name == "manifest.json":
            raise Killed
        write_json(path, content)

    write_json = manifest.write_json
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(manifest, "write_json", die)
        with pytest.raises(Killed):
            index_module.build_index(inputs, out, **arguments)


def test_changed_inputs_start_clean(inputs, tmp_path):
    from dataclasses import replace

    out = tmp_path / "I"
    others = {
        "text": replace(inputs, texts=["Changed.", *inputs.texts[1:]]),
        "id": replace(inputs, ids=["1", *inputs.ids[1:]]),
        "uncertain": changed(inputs, "labels", settings={"uncertain": "blank"}),
        "label": changed(inputs, "labels", of_row=inputs.attached["labels"].of_row[::-1].copy()),
        "graph": changed(inputs, "radgraph", of_row=inputs.attached["radgraph"].of_row[::-1].copy()),
        "dangling": changed(inputs, "radgraph", values=replace(inputs.attached["radgraph"].values, n_dangling=7)),
    }
    for other in others.values():
        killed_build(inputs, out)
        named = Calls()
        index = index_module.build_index(other, out, progress=named)
        assert named.steps == PARTS
        assert index.fingerprint == index_module.build_index(other, tmp_path / "clean").fingerprint
        shutil.rmtree(out)
        shutil.rmtree(tmp_path / "clean")


def test_arrays_of_another_representation_are_other_inputs(inputs):
    from dataclasses import replace

    attached = inputs.attached["labels"]
    kinds = ("labels", "chexbert")
    assert len({index_module.inputs_digest(replace(inputs, attached={kind: attached})) for kind in kinds}) == 2


def test_fewer_metrics_on_resuming_leave_nothing_behind(inputs, tmp_path):
    killed_build(inputs, tmp_path / "I")
    named = Calls()
    index = index_module.build_index(inputs, tmp_path / "I", metrics=["bleu"], progress=named)
    assert named.steps == []
    assert sorted(everything(index.folder)) == sorted([*index.content["files"], "manifest.json", "stamps.json"])
    assert not (index.folder / "radgraph").exists()


@pytest.mark.parametrize("damage", ["cut", "altered", "gone", "list", "text", "form", "pieces", "climbs"])
def test_damaged_unfinished_build_starts_clean(inputs, built, tmp_path, damage):
    killed_build(inputs, tmp_path / "I")
    building = tmp_path / "I.building"
    (tmp_path / "reports.arrow").write_text("mine")
    state = checksum.read_sealed(building / "build.json", "")
    path = building / "ngrams/features.arrow"
    if damage == "cut":
        path.write_bytes(path.read_bytes()[:-5])
    elif damage == "altered":
        content = bytearray(path.read_bytes())
        content[-20] ^= 1
        path.write_bytes(content)
    elif damage == "gone":
        path.unlink()
    else:
        if damage == "form":
            state = {"done": [1]}
        elif damage == "pieces":
            state["ngrams/features.arrow"] = 5
        elif damage == "climbs":
            state["../reports.arrow"] = {"made_of": "", "sha256": hashlib.sha256(b"mine").hexdigest()}
        text = {"list": "[]", "text": "{"}.get(damage, json.dumps(checksum.seal(state)))
        (building / "build.json").write_text(text)
    assert index_module.build_index(inputs, tmp_path / "I").fingerprint == built.fingerprint
    assert (tmp_path / "reports.arrow").read_text() == "mine"


def test_build_killed_after_the_rename_is_cleaned(inputs, built, tmp_path, monkeypatch):
    def die(out):
        raise Killed

    with monkeypatch.context() as patch:
        patch.setattr(index_module, "_remove_build_files", die)
        with pytest.raises(Killed):
            index_module.build_index(inputs, tmp_path / "I")
    assert {".lock", "build.json"} <= set(os.listdir(tmp_path / "I"))
    assert open_index(tmp_path / "I").fingerprint == built.fingerprint
    with pytest.raises(InputError, match=r"^out must be a new folder; got .*I, which exists\."):
        index_module.build_index(inputs, tmp_path / "I")
    assert set(everything(tmp_path / "I")) == set(everything(built.folder))


def test_finished_parts_survive_damage_of_others(inputs, built, tmp_path):
    killed_build(inputs, tmp_path / "I")
    (tmp_path / "I.building/ngrams/features.arrow").write_bytes(b"")
    named = Calls()
    assert index_module.build_index(inputs, tmp_path / "I", progress=named).fingerprint == built.fingerprint
    assert named.steps == ["ngrams"]


def test_power_cut(inputs, built, tmp_path, monkeypatch):
    root, cuts = tmp_path / "root", []
    root.mkdir()
    power = Power(monkeypatch, root)
    rename = Path.rename

    def renamed(self, target):
        found = rename(self, target)
        if Path(target) == root / "I":
            # The new name may reach the disk at once, or not.
            for names in (None, {"I": (root / "I").stat().st_ino}):
                cuts.append(tmp_path / f"cut{len(cuts)}")
                power.cut(cuts[-1], kinds_of(root), names)
        return found

    monkeypatch.setattr(Path, "rename", renamed)
    assert index_module.build_index(inputs, root / "I").fingerprint == built.fingerprint
    cuts.append(tmp_path / "announced")
    power.cut(cuts[-1], kinds_of(root))
    monkeypatch.undo()
    assert [os.listdir(cut) for cut in cuts] == [[], ["I"], ["I"]]
    for cut in cuts[1:]:
        index = open_index(cut / "I")
        index.verify_files()
        assert index.fingerprint == built.fingerprint
        assert retrieve(index, ["No effusion."], "bleu").table.num_rows == 1
    index = index_module.build_index(inputs, cuts[0] / "I")
    assert index.fingerprint == built.fingerprint


def test_two_builds_at_once(inputs, built, tmp_path):
    inside, go_on = threading.Event(), threading.Event()

    def hold(*step):
        inside.set()
        assert go_on.wait(HANG)

    results = []
    first = threading.Thread(
        target=lambda: results.append(index_module.build_index(inputs, tmp_path / "I", progress=hold))
    )
    first.start()
    assert inside.wait(HANG)
    match = r"^another build is working in .*I\.building\. Wait for it to end\.$"
    with pytest.raises(InputError, match=match):
        index_module.build_index(inputs, tmp_path / "I")
    go_on.set()
    first.join()
    assert results[0].fingerprint == built.fingerprint


def test_build_that_ends_while_another_waits_for_the_lock(inputs, built, tmp_path, monkeypatch):
    alone = job.exclusive

    def late(*building):
        monkeypatch.undo()
        shutil.copytree(built.folder, tmp_path / "I")
        return alone(*building)

    monkeypatch.setattr(job, "exclusive", late)
    with pytest.raises(InputError, match=r"^out must be a new folder; got .*I, which exists"):
        index_module.build_index(inputs, tmp_path / "I")
    assert everything(tmp_path / "I") == everything(built.folder)


def test_corpus_without_anything_to_tokenize(tmp_path):
    reports = Reports(["a", "b"], ["", "..."], "test", {"missing": 3}, {})
    index = build_index(reports, tmp_path / "I")
    assert index.content["counts"] == {"reports": 2, "distinct_texts": 2, "missing": 3, "empty": 0, "tokenless": 0}
    assert retrieve(index, ["x"], "bleu", k=2).table["score"].to_pylist() == [0.0, 0.0]


@pytest.mark.parametrize("what", ["text", "study_id", "distinct_id"])
def test_damage_of_reports_that_kept_size_and_time(tmp_path, what):
    """One flipped bit that makes no UTF-8 of a text or an id, or an id of a text that is not there."""
    reports = {f"study{i}": f"Report{i} of the heart." for i in range(4)}
    index = build_index(reports, tmp_path / "I", metrics="bleu")
    path = tmp_path / "I/reports.arrow"
    raw, stat = bytearray(path.read_bytes()), path.stat()
    if what == "distinct_id":
        place = raw.index(np.arange(4).tobytes(), raw.index(b"Report3"))  # the first such run is that of the rows
        raw[place + 9] ^= 0x80
    else:
        raw[raw.index(b"Report2" if what == "text" else b"study2") + 2] ^= 0x80
    path.write_bytes(raw)
    os.utime(path, ns=(stat.st_atime_ns, stat.st_mtime_ns))
    calls = [
        lambda: retrieve(open_index(index.folder), ["heart"], "bleu", k=4).table,
        lambda: score(index.folder, list(reports.values()), "bleu", inner=True),
        lambda: score({"study2": "heart"}, index.folder, "bleu", inner=True, text=True),
    ]
    for call in calls:
        with pytest.raises(
            DamagedIndexError, match=r"^\w+: reports\.arrow must be unchanged since the index was built; got"
        ):
            call()
    with pytest.raises(
        DamagedIndexError, match=r"^reports\.arrow in .* does not have its checksum in manifest\.json: "
    ):
        open_index(index.folder).verify_files()
