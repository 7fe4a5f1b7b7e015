import errno
import threading

import numpy as np
import pyarrow as pa
import pytest

from metric_oracle.base.errors import InputError
from metric_oracle.corpora.reports import Reports
from metric_oracle.indexes import features, store
from metric_oracle.indexes.build import build_index
from metric_oracle.indexes.store import (
    Strings,
    hash_content,
    hash_strings,
    map_file,
    take_strings,
    to_arrow,
    to_numpy,
    write_arrays,
)

WORDS = ["", "b", "é", "日本", "c" * 300, "", "a\x00b"]


def test_strings_are_a_sequence(monkeypatch):
    monkeypatch.setattr(store, "BATCH", 3)
    for made in (WORDS, tuple(WORDS), pa.array(WORDS), pa.chunked_array([WORDS[:2], [], WORDS[2:]]), Strings(WORDS)):
        strings = Strings(made)
        assert list(strings) == WORDS
        assert len(strings) == 7
        assert [strings[np.int64(i)] for i in range(-7, 7)] == WORDS + WORDS
        assert strings[2:5] == WORDS[2:5]
        with pytest.raises(IndexError):
            strings[7]
    assert list(Strings([])) == []


@pytest.mark.parametrize("offsets", [[], [1, 3], [0, 2], [0, 4], [0, 2, 1, 3]])
def test_offsets_that_do_not_cut_their_values(offsets):
    store.check_offsets(np.array([0, 0, 2, 3]), "abc")
    with pytest.raises(ValueError, match=r"^offsets that lead out of their array$"):
        store.check_offsets(np.array(offsets, np.int64), "abc")


def test_hash_of_strings_does_not_tell_their_chunks():
    whole = Strings(WORDS).arrow
    for cut in range(8):
        chunks = pa.chunked_array([WORDS[:cut], WORDS[cut:]], pa.large_string())
        assert hash_strings(chunks) == hash_strings(whole)
    sliced = Strings(["x", *WORDS, "y"]).arrow.slice(1, 7)
    assert hash_strings(sliced) == hash_strings(whole)
    others = [WORDS[:-1], WORDS[::-1], ["", "bé", "", *WORDS[3:]], [*WORDS, ""]]
    assert len({hash_strings(Strings(other).arrow) for other in [WORDS, *others]}) == 5


def test_hash_of_content_tells_names_shapes_types_and_values(tmp_path):
    base = {"x": np.arange(6), "s": ["a", "b"]}
    changes = [
        base,
        {"y": base["x"], "s": base["s"]},
        {**base, "x": np.arange(6).reshape(2, 3)},
        {**base, "x": np.arange(6, dtype=np.int32)},
        {**base, "x": np.arange(1, 7)},
        {**base, "s": ["ab", ""]},
    ]
    hashes = []
    for i, columns in enumerate(changes):
        write_arrays(tmp_path / f"{i}.arrow", columns)
        hashes.append(hash_content(map_file(tmp_path / f"{i}.arrow")))
    assert len(set(hashes)) == len(changes)
    write_arrays(tmp_path / "turned.arrow", dict(reversed(base.items())))
    assert hash_content(map_file(tmp_path / "turned.arrow")) == hashes[0]


@pytest.mark.parametrize(
    "values",
    [[], WORDS, *(np.arange(n).astype(kind) for n in (0, 1, 9) for kind in (np.int64, np.int32, np.float64, bool))],
)
def test_what_becomes_arrows_is_what_arrow_makes_of_it(values):
    made = to_arrow(values)
    made.validate(full=True)
    assert made.equals(pa.array(values, pa.large_string() if isinstance(values, list) else None))
    if made.type != pa.bool_() and not isinstance(values, list):
        several = pa.chunked_array([made, made[:0], made[1:]])
        assert to_numpy(several).tolist() == several.to_pylist()
        assert to_numpy(pa.chunked_array([made])).dtype == values.dtype


@pytest.mark.parametrize("few", [0, 100])
def test_strings_are_taken_as_arrow_takes_them(monkeypatch, few):
    monkeypatch.setattr(store, "FEW", few)
    whole = pa.array(["cut", *WORDS], pa.large_string())[1:]
    for column in (pa.chunked_array([whole]), pa.chunked_array([whole[:3], whole[3:]])):
        for places in ([], [6, 0, 0, 3], range(7)):
            found = take_strings(column, np.array(places, np.int64))
            assert found.to_pylist() == [WORDS[i] for i in places]
            assert found.type == pa.large_string()


def test_large_arrays_are_gathered_in_a_file_and_written_in_pieces(tmp_path, monkeypatch):
    parts = [np.arange(n, dtype=np.int32) for n in (700, 0, 1, 5000)]
    whole = np.concatenate(parts)
    monkeypatch.setattr(store, "_MAPS", maps := store.WeakSet())
    inside, outside = store.gathered(iter(parts)), store.gathered(iter(parts), tmp_path / "scratch")
    assert len(maps) == 1
    assert list((tmp_path / "scratch").iterdir()) == []  # its name is gone
    for found in (inside, outside):
        assert (found.dtype, found.tolist(), found.flags.writeable) == (np.int32, whole.tolist(), False)
    assert store.gathered([parts[0]]) is parts[0]

    columns = {"x": outside, "s": ["a", "b" * 999], "empty": whole[:0]}
    write_arrays(tmp_path / "whole.arrow", columns)
    monkeypatch.setattr(store, "PIECE", 1000)
    write_arrays(tmp_path / "pieces.arrow", columns)
    assert (tmp_path / "pieces.arrow").read_bytes() == (tmp_path / "whole.arrow").read_bytes()


def test_a_full_disk_is_no_gathered_array(tmp_path, monkeypatch):
    def full(*_, **__):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(store.tempfile, "TemporaryFile", full)
    monkeypatch.setattr(features, "AT_ONCE", 3)
    match = r"^out must be a folder that can be written; got .*Make room and run the same command again"
    with pytest.raises(InputError, match=match):
        build_index(Reports(["a", "b"], ["no effusion", "no edema"]), tmp_path / "I", metrics=["bleu"])


def test_release_knows_all_files_of_an_index(tmp_path, monkeypatch):
    index = build_index(Reports(["a", "b"], ["no effusion", "edema"]), tmp_path / "I", metrics=["bleu"])
    monkeypatch.setattr(store, "_MAPS", kept := store.WeakSet())
    again = type(index)(index.folder)
    assert {len(m) for m in kept} == {entry["bytes"] for entry in index.content["files"].values()}
    assert again.reports["text"].to_pylist() == ["no effusion", "edema"]
    assert again.distinct.num_rows == 2
    assert len(kept) == len(index.content["files"])  # no other map was made


def test_maps_are_made_while_others_are_given_back(tmp_path):
    (tmp_path / "a").write_bytes(b"x" * 5000)
    failed = []

    def work(call):
        try:
            for _ in range(300):
                call()
        except RuntimeError as error:  # a set that changes size
            failed.append(error)

    kept = []
    calls = [lambda: kept.append(map_file(tmp_path / "a"))] * 2 + [store.release]
    threads = [threading.Thread(target=work, args=[call]) for call in calls]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failed
    assert len(kept) == 600


@pytest.mark.parametrize("offsets", [[], [1, 2], [0, 1], [0, 3, 2], [0, 2, 1, 2], [0, 9]])
def test_offsets_that_leave_their_array(offsets):
    with pytest.raises(ValueError, match=r"^offsets that lead out of their array$"):
        store.check_offsets(np.array(offsets, np.int64), np.arange(2))


def test_a_table_of_other_columns(tmp_path):
    table = pa.table({"row": pa.array([0], pa.int64())})
    store.write_table(tmp_path / "t.arrow", table)
    assert store.read_table(map_file(tmp_path / "t.arrow"), table.schema).equals(table)
    with pytest.raises(ValueError, match=r"^a table of other columns$"):
        store.read_table(map_file(tmp_path / "t.arrow"), store.DISTINCT)


def test_features_of_unlike_lengths():
    two, one = np.array([0, 1, 2]), np.array([0, 2])
    columns = {
        "post_ptr": two, "post_unit": np.zeros(2, np.int32), "fwd_ptr": one, "fwd_id": np.arange(2, dtype=np.int32),
        "sizes": np.full((1, 1), 2, np.int32), "skip_slot": np.full(2, -1, np.int32),
        "skip": np.empty((0, 2), np.int32), "row_ptr": np.array([0, 1]), "row_id": np.zeros(1, np.int64),
    }  # fmt: skip
    assert len(features.load_features(dict(columns)).fwd_id) == 2
    for name, wrong in {"skip_slot": columns["skip_slot"][:1], "sizes": np.full((1, 2), 1, np.int32)}.items():
        with pytest.raises(ValueError, match=r"^arrays of unlike lengths$"):
            features.load_features({**columns, name: wrong})
