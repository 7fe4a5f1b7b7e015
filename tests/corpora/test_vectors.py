import json
import sys
import warnings
import zipfile

import numpy as np
import polars as pl
import pytest

from metric_oracle.base.errors import BackendError, DtypeError, InputError
from metric_oracle.corpora.label_tables import LABELS, read_label_table, read_labels
from metric_oracle.corpora.vectors import read_embeddings

VALUES = np.array([[1.0, 0.5], [0.25, -2.0], [3.0, 0.0]], np.float32)
IDS = ["50000001", "50000002", "x"]


def write(folder, name, content):
    path = folder / name
    path.write_text(content, encoding="utf-8")
    return path


@pytest.fixture
def ids_file(tmp_path):
    return write(tmp_path, "ids.txt", "s50000001\n50000002.0\nx\n")


def save_npy(folder, values):
    np.save(folder / "e.npy", values)
    return folder / "e.npy"


def check(vectors):
    assert vectors.ids == IDS
    assert vectors.values.dtype == np.float32
    np.testing.assert_array_equal(vectors.values, VALUES)


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_npy(tmp_path, ids_file, dtype):
    check(read_embeddings(save_npy(tmp_path, VALUES.astype(dtype)), ids=ids_file))


def test_ids_from_a_table(tmp_path):
    ids = write(tmp_path, "ids.csv", ",study_id,report\n0,s50000001,A.\n1,50000002,B.\n2,x,C.\n")
    check(read_embeddings(save_npy(tmp_path, VALUES), ids=ids))


def test_npz(tmp_path, ids_file):
    np.savez(tmp_path / "own.npz", ids=np.array(IDS), embeddings=VALUES)
    check(read_embeddings(tmp_path / "own.npz"))
    np.savez_compressed(tmp_path / "bare.npz", VALUES)
    check(read_embeddings(tmp_path / "bare.npz", ids=ids_file))


@pytest.mark.parametrize("kind", [pl.List(pl.Float32), pl.Array(pl.Float64, 2)])
def test_parquet(tmp_path, kind):
    path = tmp_path / "e.parquet"
    pl.DataFrame({"study_id": IDS, "n": [1, 2, 3], "v": pl.Series(VALUES.tolist(), dtype=kind)}).write_parquet(path)
    check(read_embeddings(path))


def test_pt(tmp_path, ids_file):
    torch = pytest.importorskip("torch")
    path = tmp_path / "e.pt"
    torch.save({row: torch.tensor(VALUES[row]) for row in (2, 0, 1)}, path)
    check(read_embeddings(path, ids=ids_file))
    torch.save(torch.tensor(VALUES, dtype=torch.bfloat16, requires_grad=True), path)
    check(read_embeddings(path, ids=ids_file))


@pytest.mark.parametrize(
    ("content", "error", "match"),
    [
        (
            {0: [0.5], 1: [0.5], 2: [0.5]},
            DtypeError,
            "must hold dense tensors of one shape; got tensors of several shapes, or .* without the logits flag",
        ),
        ({1: [0.5], 2: [0.5]}, InputError, "the keys of the dict in .* must be the rows from 0 to 1"),
        ({}, DtypeError, "must hold a dense tensor of numbers or an object row -> tensor; got dict"),
        ([0.5], DtypeError, "must hold a dense tensor of numbers or an object row -> tensor; got list"),
        (object, InputError, "whole .pt file without pickled objects"),
    ],
)
def test_bad_pt(tmp_path, ids_file, content, error, match):
    torch = pytest.importorskip("torch")
    torch.save(content, tmp_path / "e.pt")
    with pytest.raises(error, match=match):
        read_embeddings(tmp_path / "e.pt", ids=ids_file)


@pytest.mark.parametrize("kind", ["sparse", "csr", "quantized", "meta", "nested", "jagged", "rows"])
def test_pt_of_tensors_that_numpy_cannot_hold(tmp_path, ids_file, kind):
    torch = pytest.importorskip("torch")
    values = torch.eye(3)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # PyTorch calls these kinds experimental
        made = {
            "sparse": values.to_sparse,
            "csr": values.to_sparse_csr,
            "quantized": lambda: torch.quantize_per_tensor(values, 0.5, 0, torch.qint8),
            "meta": lambda: values.to("meta"),
            "nested": lambda: torch.nested.nested_tensor([values[0], values[1][:2]]),
            "jagged": lambda: torch.nested.nested_tensor([values[0], values[1][:2]], layout=torch.jagged),
            "rows": lambda: {row: values[row].to_sparse() for row in range(3)},
        }[kind]()
        torch.save(made, tmp_path / "e.pt")
        match = r"^(a \.pt \w+ must hold (a )?dense tensors?|.*e\.pt is not a whole \.pt file)"
        with pytest.raises((DtypeError, InputError), match=match):
            read_embeddings(tmp_path / "e.pt", ids=ids_file)


def test_pt_of_conjugates_is_called_complex(tmp_path, ids_file):
    torch = pytest.importorskip("torch")
    torch.save(torch.ones((3, 2), dtype=torch.complex64).conj(), tmp_path / "e.pt")
    with pytest.raises(DtypeError, match=r"floating 2-d array; .* dtype complex64"):
        read_embeddings(tmp_path / "e.pt", ids=ids_file)


def test_pt_with_a_damaged_member_is_refused(tmp_path, ids_file):
    torch = pytest.importorskip("torch")
    path = tmp_path / "e.pt"
    torch.save(torch.tensor(VALUES), path)
    raw = path.read_bytes()
    path.write_bytes(raw.replace(VALUES.tobytes(), (VALUES * 2).tobytes()))
    assert path.read_bytes() != raw
    with pytest.raises(InputError, match=r"is not a whole \.pt file"):
        read_embeddings(path, ids=ids_file)


def test_pt_of_integers(tmp_path, ids_file):
    torch = pytest.importorskip("torch")
    torch.save(torch.ones((3, 2), dtype=torch.int64), tmp_path / "e.pt")
    with pytest.raises(DtypeError, match=r"floating 2-d array; .* dtype int64"):
        read_embeddings(tmp_path / "e.pt", ids=ids_file)


def test_pt_without_torch_names_the_extra(tmp_path, ids_file, monkeypatch):
    monkeypatch.setitem(sys.modules, "torch", None)
    with pytest.raises(BackendError, match=r'the \.pt file .*e\.pt needs .* torch, .*"torch>='):
        read_embeddings(write(tmp_path, "e.pt", "x"), ids=ids_file)


def altered(place, value):
    values = VALUES.astype(np.float64)
    values[place] = value
    return values


@pytest.mark.parametrize(
    ("values", "error", "match"),
    [
        (VALUES[0], DtypeError, r"floating 2-d array; got shape \(2,\) and dtype float32"),
        (VALUES.astype(int), DtypeError, "floating 2-d array; .* dtype int64"),
        (VALUES[:0], InputError, r"vectors must be at least one; got shape \(0, 2\)"),
        (VALUES[:2], InputError, "ids of the vectors must be as many as vectors; got 3 in .* and 2 in"),
        (altered((1, 0), np.nan), InputError, r"every vector must be finite; got row 2 \(id '50000002'\)"),
        (altered((2, 0), -np.inf), InputError, "every vector must be finite; got row 3"),
        (altered((2, 0), 1e300), InputError, "every vector must be finite; got row 3"),
        (altered(0, 0.0), InputError, r"every vector must be other than zero; got row 1 \(id '50000001'\)"),
        (altered(1, 1e-60), InputError, r"every vector must be other than zero; got row 2 \(id '50000002'\)"),
        (altered(1, -1e60), InputError, r"every vector must be finite; got row 2 \(id '50000002'\)"),
        (np.array([[None]]), InputError, "whole .npy file without pickled objects"),
    ],
)
def test_bad_vectors(tmp_path, ids_file, values, error, match):
    with pytest.raises(error, match=match):
        read_embeddings(save_npy(tmp_path, values), ids=ids_file)


def test_ids_are_passed_exactly_once(tmp_path, ids_file):
    with pytest.raises(InputError, match="ids of the vectors must be given where the file holds no ids"):
        read_embeddings(save_npy(tmp_path, VALUES))
    np.savez(tmp_path / "e.npz", ids=np.array(IDS), embeddings=VALUES)
    with pytest.raises(InputError, match="ids of the vectors must be left out where the file holds ids"):
        read_embeddings(tmp_path / "e.npz", ids=ids_file)


@pytest.mark.parametrize(
    ("name", "content", "match"),
    [
        ("ids.txt", "a\nb\na\n", "an id occurs more than once in .*: 'a'"),
        ("ids.txt", "a\n\nb\n", "there is no id in row 2 of "),
        ("ids.csv", "nr,report\n1,A.\n", "ids of the vectors must have a column with a usual id name"),
    ],
)
def test_bad_ids(tmp_path, name, content, match):
    with pytest.raises(InputError, match=match):
        read_embeddings(save_npy(tmp_path, VALUES), ids=write(tmp_path, name, content))


def test_absent_files(tmp_path):
    with pytest.raises(InputError, match="there is no file"):
        read_embeddings(tmp_path / "e.npy")
    with pytest.raises(InputError, match=r"there is no file .*absent\.txt"):
        read_embeddings(save_npy(tmp_path, VALUES), ids=tmp_path / "absent.txt")


@pytest.mark.parametrize(
    ("name", "rule"),
    [
        ("e.npy", "is not a whole .npy file"),
        ("e.npz", "is not a whole .npz file"),
        ("e.parquet", "is not a whole Parquet file"),
    ],
)
def test_damaged_files(tmp_path, name, rule):
    with pytest.raises(InputError, match=rule):
        read_embeddings(write(tmp_path, name, "no array"))


def test_cut_npz(tmp_path):
    path = tmp_path / "e.npz"
    np.savez(path, ids=np.array(IDS), embeddings=VALUES)
    raw = bytearray(path.read_bytes())
    raw[200:220] = b"\xff" * 20
    path.write_bytes(raw)
    with pytest.raises(InputError, match=r"is not a whole .npz file"):
        read_embeddings(path)


def test_other_endings(tmp_path):
    with pytest.raises(
        InputError, match=r"is not a file of vectors by its ending, which must be one of \.npy, \.npz, \.parquet, \.pt"
    ):
        read_embeddings(write(tmp_path, "e.h5", "x"))


NPY = b"\x93NUMPY\x01\x00"


@pytest.mark.parametrize(
    "header",
    [
        "{[]: 1}",
        "{",
        "{'descr': '<f4', 'fortran_order': False, 'shape': (10000000000000000000, 2)}",
        "{'descr': '<f4', 'fortran_order': False, 'shape': (0, 10000000000000000000)}",
        "{'descr': '<f4', 'fortran_order': False, 'shape': (1000000000, 768)}",
        "{'descr': '<f4', 'fortran_order': False, 'shape': (-3, -2)}",
        "{'descr': '<f4', 'fortran_order': False, 'shape': (2, 2)}",
    ],
)
@pytest.mark.parametrize("name", ["e.npy", "e.npz"])
def test_headers_that_promise_something_else(tmp_path, ids_file, name, header):
    text = header.encode().ljust(117) + b"\n"
    content = NPY + len(text).to_bytes(2, "little") + text + VALUES.tobytes()
    path = tmp_path / name
    if name == "e.npy":
        path.write_bytes(content)
    else:
        with zipfile.ZipFile(path, "w") as archive:
            archive.writestr("e.npy", content)
    # Warnings are errors here: NumPy must not see such a header.
    with pytest.raises(InputError, match=rf"^{path} is not a whole {name[1:]} file "):
        read_embeddings(path, ids=ids_file)


def test_npz_ids_beyond_ascii(tmp_path):
    path = tmp_path / "e.npz"
    np.savez(path, ids=np.array([b"\xff1", b"2", b"3"]), v=VALUES)
    with pytest.raises(
        InputError, match=rf"ids of the vectors must be text or numbers; got bytes beyond ASCII in {path}"
    ):
        read_embeddings(path)
    np.savez(path, ids=np.array(["é", "2", "3"]), v=VALUES)
    assert read_embeddings(path).ids == ["é", "2", "3"]


def test_npz_with_two_members_of_one_name(tmp_path, ids_file):
    path = tmp_path / "e.npz"
    np.savez(path, v=VALUES)
    with zipfile.ZipFile(path, "a") as archive, pytest.warns(UserWarning, match="Duplicate name"):
        archive.writestr("v.npy", archive.read("v.npy"))
    with pytest.raises(InputError, match=r"is not a whole \.npz file"):
        read_embeddings(path, ids=ids_file)


def test_npz_with_several_arrays(tmp_path):
    np.savez(tmp_path / "e.npz", ids=np.array(IDS), a=VALUES, b=VALUES)
    with pytest.raises(
        InputError, match="must hold one array of vectors, and ids under the name ids; got 2 arrays beside ids"
    ):
        read_embeddings(tmp_path / "e.npz")


@pytest.mark.parametrize(
    ("columns", "match"),
    [
        ({"id": ["a"], "v": [1.0]}, "an id column and one column of lists; got 0 columns of lists"),
        ({"v": [[1.0]]}, "an id column and one column of lists; got 1 columns"),
        ({"id": pl.Series([], dtype=str), "v": pl.Series([], dtype=pl.List(float))}, "must have rows, of one width"),
        ({"id": ["a", "b"], "v": [[1.0], [1.0, 2.0]]}, "must have rows, of one width and without missing values"),
        ({"id": ["a", "b"], "v": [[1.0], None]}, "must have rows, of one width and without missing values"),
        ({"id": ["a", "b"], "v": [[1.0], [None]]}, "must have rows, of one width and without missing values"),
    ],
)
def test_bad_parquet(tmp_path, columns, match):
    pl.DataFrame(columns).write_parquet(tmp_path / "e.parquet")
    with pytest.raises(InputError, match=match):
        read_embeddings(tmp_path / "e.parquet")


# Labels

SNAKE = [label.lower().replace(" ", "_") for label in LABELS]


def row(cells, names=LABELS):
    """Return a CSV row that is empty but for `cells`."""
    return ",".join(str(cells.get(name, "")) for name in names)


def test_chexbert_csv_has_no_ids(tmp_path):
    lines = [
        "Report Impression," + ",".join(LABELS),
        '"Two\nlines.",' + row({"Edema": "1.0", "Fracture": "0.0", "Pneumonia": "-1.0"}),
        "Normal.," + row({"No Finding": "1.0"}),
    ]
    labels = read_labels(write(tmp_path, "labeled_reports.csv", "\n".join(lines)))
    assert labels.ids is None
    assert labels.values.dtype == np.uint8
    expected = np.zeros((2, 14), np.uint8)
    expected[0, LABELS.index("Edema")] = 1
    expected[0, LABELS.index("Fracture")] = 2
    expected[0, LABELS.index("Pneumonia")] = 3
    expected[1, LABELS.index("No Finding")] = 1
    np.testing.assert_array_equal(labels.values, expected)


def test_mimic_csv_is_alphabetical_with_ids(tmp_path):
    names = sorted(LABELS)
    lines = ["subject_id,study_id," + ",".join(names), "1,50000001," + row({"Edema": "-1.0"}, names)]
    labels = read_labels(write(tmp_path, "mimic-cxr-2.0.0-chexpert.csv", "\n".join(lines)))
    assert labels.ids == ["50000001"]
    assert labels.values[0, LABELS.index("Edema")] == 3
    assert labels.values.sum() == 3


CAMEL = [label.replace(" ", "") for label in LABELS]


@pytest.mark.parametrize("names", [LABELS, SNAKE, CAMEL, [label.upper() for label in LABELS]])
def test_codes_mean_the_same_under_every_spelling(tmp_path, names):
    def read(cells):
        """Return the class of each label of two reports, the second positive throughout."""
        rows = [f"d1,{','.join(cells)}", "d2," + ",".join(["1"] * 14)]
        return read_labels(write(tmp_path, "a.csv", "\n".join(["dicom_id," + ",".join(names), *rows])))

    labels = read(["0", "1", "2", "3"] * 3 + ["0", "1"])  # a 2 or 3 shows classes
    assert labels.ids == ["d1", "d2"]
    assert labels.values[0].tolist() == [0, 1, 2, 3] * 3 + [0, 1]
    assert read(["0", "1", "-1", "1"] * 3 + ["0", "1"]).values[0].tolist() == [2, 1, 3, 1] * 3 + [2, 1]
    assert read(["0", "1", "", "nan"] * 3 + ["0", "0"]).values[0].tolist() == [2, 1, 0, 0] * 3 + [2, 0]
    with pytest.raises(InputError, match="must hold 1, 0, -1 or empty; got another value in row 1"):
        read(["0", "1", "2", ""] * 3 + ["0", "1"])
    binary = ["0", "1"] * 7
    if names is LABELS:
        assert read(binary).values[0].tolist() == [2, 1] * 7
    else:
        match = (
            r"the labels of .* must show whether 0 means negative \(beside 1, -1 and empty\) or blank .*; got 0 and 1 "
            r"alone\. Write a table with the columns 'Enlarged Cardiomediastinum', 'Cardiomegaly', \.\.\.,"
        )
        with pytest.raises(InputError, match=match):
            read(binary)


def test_chexpert_plus_json_lines(tmp_path):
    records = [
        {"path_to_image": f"train/patient1/study1/view{view}.jpg"} | dict.fromkeys(LABELS) | {"Edema": value}
        for view, value in ((2, 0.0), (1, 1.0))
    ]
    content = "\n".join(map(json.dumps, records))
    labels = read_labels(write(tmp_path, "impression_fixed.json", content))
    assert labels.ids == ["patient1_study1"]
    assert labels.values[0, LABELS.index("Edema")] == 1


def test_iu_xray_labels(iu_xray):
    labels = read_labels(iu_xray / "chexbert_labels_organ.csv")
    assert labels.ids is not None
    assert len(labels.ids) == len(labels.values) == 2955
    # This file writes the blank of No Finding as 0.
    assert set(np.unique(labels.values[:, -1])) == {0, 1}


@pytest.mark.parametrize(
    ("names", "cells", "match"),
    [
        (LABELS[1:], {}, "lacks columns of the 14 CheXbert labels: Enlarged Cardiomediastinum"),
        (LABELS, {"Edema": "2"}, "column 'Edema' of .* must hold 1, 0, -1 or empty; got another value in row 1"),
        (LABELS, {"Edema": "yes"}, "column 'Edema' of .* must hold 1, 0, -1 or empty"),
        (LABELS, {"No Finding": "-1"}, "column 'No Finding' of .* must hold 1, 0 or empty"),
        (SNAKE, {"edema": "2"}, "column 'edema' of .* must hold 1, 0, -1 or empty; got another value in row 1"),
    ],
)
def test_bad_labels(tmp_path, names, cells, match):
    with pytest.raises(InputError, match=match):
        read_labels(write(tmp_path, "a.csv", "id," + ",".join(names) + "\nx," + row(cells, names)))


@pytest.mark.parametrize("cell", [[1], {"a": 1}, []])
def test_labels_with_cells_of_lists(tmp_path, cell):
    content = json.dumps([{"id": "x", **dict.fromkeys(LABELS), "Edema": cell}])
    with pytest.raises(InputError, match=r"'Edema' of .* must hold 1, 0, -1 or empty; got another value in row 1"):
        read_labels(write(tmp_path, "a.json", content))
    content = json.dumps([{"study_id": "1", "a": 1}, {"study_id": "2", "a": cell}])
    with pytest.raises(InputError, match=r"label column 1 \('a'\) of .* must hold 1, 0, -1 or empty; got .* in row 2"):
        read_label_table(write(tmp_path, "b.json", content))


def test_quoted_empty_labels_are_blank(tmp_path):
    text = "id," + ",".join(LABELS) + '\n"x",' + ",".join(['""'] * 13) + ',"1.0"\n'
    assert read_labels(write(tmp_path, "a.csv", text)).values.tolist() == [[0] * 13 + [1]]


def test_label_ids_must_be_unique(tmp_path):
    with pytest.raises(InputError, match=r"an id occurs more than once in 'id' in .*: 'x'"):
        read_labels(write(tmp_path, "a.csv", "id," + ",".join(LABELS) + ("\nx," + row({})) * 2))


def test_absent_labels(tmp_path):
    with pytest.raises(InputError, match=r"there is no file .*absent"):
        read_labels(tmp_path / "absent.csv")


def test_vectors_that_would_fill_the_memory(tmp_path):
    np.savez_compressed(tmp_path / "a.npz", ids=np.array(["1"]), embeddings=np.zeros((1, 1 << 25), np.float32))
    with pytest.raises(InputError, match=r"^.* unpacks to more than 300 times its size"):
        read_embeddings(tmp_path / "a.npz")
