"""Report text in the place of an argument: no message shows it."""

import pytest

import metric_oracle as mo
from metric_oracle.typed import Hidden, is_text, texts_in, without
from support import SECRET

WORD = SECRET.split()[0]
SHORT = f"{SECRET} on the left."
TEXTS = {
    "short": SHORT,
    "long": f"{SHORT} " * 20,
    "of lines": f"{SHORT}\nNo effusion.\n",
    "with NUL": f"{SECRET}\0",
    "without blanks": WORD + "胸水" * 9,
    "of another script": f"{WORD}双肺纹理清晰。",
    "in a folder": f"none/{SHORT}",
    "with an ending": f"{SHORT}csv",
    "of a list": f"{SHORT}, {SECRET}=b",
}


@pytest.mark.parametrize(
    ("value", "may_be_report", "expected"),
    [
        *[(text, False, True) for text in TEXTS.values()],
        ("tests.csv", True, False),
        ("tests.csv.gz", True, False),
        ("报告.csv", True, False),
        ("none/tests", True, False),
        ("trials", True, True),  # where reports belong, a word may be one
        ("trials", False, False),
        ("bleu,rouge-l", False, False),
        ("Größe", False, False),
        ("microsoft/BiomedVLP-CXR-BERT-specialized", False, False),
        ("a" * 60, False, False),
        ("a" * 61, False, True),
        ("", False, False),
    ],
)
def test_what_can_be_a_report(value, may_be_report, expected):
    assert is_text(value, may_be_report=may_be_report) is expected


def test_of_a_path_what_exists_is_no_report(tmp_path, monkeypatch):
    folder = tmp_path / "my files"
    folder.mkdir()
    assert not is_text(str(folder))
    assert not is_text(str(folder / "tests.csv"))
    assert is_text(str(folder / SHORT))
    monkeypatch.chdir(tmp_path)
    assert not is_text("my files/none", may_be_report=True)
    assert is_text("none/my files")


def test_a_message_names_the_argument_in_place_of_the_text():
    hidden = [*texts_in("metric", SHORT), *texts_in("keep", ["a", SECRET, "c d"])]
    assert without(f"got {SHORT!r}. {SECRET}; 'c d', xc d", hidden) == (
        "got <text given as metric>. <text 2 given as keep>; <text 3 given as keep>, xc d"
    )
    assert [*texts_in("model", {"Our model": "a.csv"})] == []  # what a system is called
    assert [*texts_in("model", ["Our model=a b"])] == [
        Hidden("Our model=a b", "<text given as model>"),
        Hidden("a b", "<text given as model>"),
    ]


@pytest.mark.parametrize("text", [pytest.param(text, id=kind) for kind, text in TEXTS.items()])
@pytest.mark.parametrize("name", ["read_reports", "open_index", "read_samples", "read_ratings", "read_results"])
def test_a_text_is_no_path_in_python(name, text):
    with pytest.raises(
        mo.MetricOracleError,
        match=rf"^{name}: \w+ must be an existing file or folder; got another text, not shown here",
    ) as caught:
        getattr(mo, name)(text)
    assert WORD not in repr(caught.value)


def test_a_text_is_no_path_of_an_output(tmp_path):
    scores = mo.score(["a", "b"], ["a", "c"], "rouge-l")
    with pytest.raises(
        mo.MetricOracleError, match=r"^build_index: out must be a path that a file can have; got another"
    ):
        mo.build_index(["a b"], TEXTS["long"])
    with pytest.raises(mo.MetricOracleError, match=r"^write_table: .*got <text given as path>") as caught:
        mo.write_table(mo.compare({"a": scores}), SHORT)
    assert WORD not in repr(caught.value)


def test_what_the_system_refuses_is_one_line(open_folder, request):
    (open_folder / "r.csv").write_text("id,report\n1,a b\n")
    (open_folder / "r.csv").chmod(0)
    request.getfixturevalue("unprivileged")
    match = (
        r"^read_reports: files and folders must be open to this user, .*; got .*r\.csv \(Permission denied\)\. Check"
    )
    with pytest.raises(mo.MetricOracleError, match=match):
        mo.read_reports(open_folder / "r.csv")
