"""Folders of text files, one report in each; folders and files that are not what their names say."""

import zipfile

import pytest

import metric_oracle as mo
from metric_oracle.base.errors import InputError
from support import assert_refused, write

TEXTS = {"001": "Clear lungs.", "002": "Mild edema.", "s50000001": "Findings: A. Impression: B.", "x-4": ""}


@pytest.fixture
def folder(tmp_path):
    path = tmp_path / "texts"
    path.mkdir()
    for name, text in TEXTS.items():
        (path / f"{name}.txt").write_text(f"\n {text}\r\n")
    (path / ".DS_Store").write_bytes(b"\0")
    (path / "Thumbs.db").write_bytes(b"\0")
    return path


def test_a_folder_of_text_files_is_read_by_their_names(oracle, folder, tmp_path):
    found = mo.read_predictions(folder)
    assert dict(zip(found.ids, found.texts, strict=True)) == {k.removeprefix("s"): text for k, text in TEXTS.items()}
    assert "folder of text files, id file name" in found.source
    (folder / "s50000001.txt").rename(folder / "y.txt")
    found = mo.read_reports(folder)
    assert (found.ids, found.states["empty"]) == (["001", "002", "y"], ["x-4"])
    table = write(tmp_path / "a.csv", [("001", "Clear lungs."), ("002", "Mild edema.")], ("study_id", "report"))
    for one, other in ((table, folder), (folder, table)):
        code, out, err = oracle("score", one, other, "-m", "rouge-l", "--inner", "--format", "csv")
        assert code == 0, err
        assert [line.split(",")[-1] for line in out.splitlines()[1:]] == ["1", "1"]
    assert oracle("build-index", folder, "--out", tmp_path / "INDEX", "-m", "rouge-l")[0] == 0
    assert mo.open_index(tmp_path / "INDEX").strings("study_id").to_pylist() == ["001", "002", "y"]
    cp1252 = folder / "002.txt"
    cp1252.write_bytes("Œdème.".encode("cp1252"))
    assert mo.read_predictions(folder).texts[1] == "Œdème."


@pytest.mark.parametrize("name", ["README.txt", "more.csv", "inner/"])
def test_a_folder_whose_names_may_be_no_ids_is_refused(oracle, folder, tmp_path, name):
    (folder / name).mkdir() if name.endswith("/") else (folder / name).write_text("x")
    (folder / "s50000001.txt").unlink()
    match = rf".* has text files and 1 other files or folders, such as {name.strip('/')}\. Leave a text file for each"
    table = write(tmp_path / "a.csv", {"1": "Clear."})
    for words in (["score", table, folder], ["score", folder, table], ["build-index", folder, "--out", tmp_path / "I"]):
        assert_refused(oracle(*words, "-m", "rouge-l"), match, "references: .*")


def test_other_folders_are_called_folders(oracle, tmp_path):
    empty, table = tmp_path / "empty", write(tmp_path / "a.csv", {"1": "Clear."})
    empty.mkdir()
    assert_refused(
        oracle("score", table, empty), r".*empty is a folder without text files\. Name a file, or", "refer.*"
    )
    match = r".*empty holds no report files such as .*\. Name a file, or a folder with a text file for each report"
    assert_refused(oracle("build-index", empty, "--out", tmp_path / "I"), match)
    with pytest.raises(InputError, match=r"^explore|must be an existing file; got the folder .*empty"):
        mo.read_scores(empty)
    with pytest.raises(InputError, match=r"empty is a folder, where a file is expected\. Name the file in it\.$"):
        mo.reports({"1": "a"}, labels=empty).load()


def test_an_archive_with_backslashes_is_read(tmp_path):
    text = " FINAL REPORT\n IMPRESSION:\n\n No acute process.\n"
    with zipfile.ZipFile(tmp_path / "m.zip", "w") as archive:
        archive.writestr("files\\p10\\p10000001\\s50000001.txt", text)
        archive.writestr("files\\p10\\p10000001\\s50000002.txt", text)
    # `writestr` may change the separators of the machine that it runs on.
    raw = (tmp_path / "m.zip").read_bytes()
    (tmp_path / "m.zip").write_bytes(raw.replace(b"files/p10/p10000001/s", b"files\\p10\\p10000001\\s"))
    found = mo.read_reports(tmp_path / "m.zip")
    assert (found.ids, found.texts) == (["50000001", "50000002"], ["No acute process."] * 2)
    with zipfile.ZipFile(tmp_path / "n.zip", "w") as archive:
        archive.writestr("1.txt", text)
    with pytest.raises(InputError, match=r"n\.zip holds no report files .*\. Unpack it, and name the file or folder"):
        mo.read_reports(tmp_path / "n.zip")


@pytest.mark.parametrize(
    "name", ["a.csv", "a.csv.gz", "a.json", "a.jsonl", "a.parquet", "a.xlsx", "a.zip", "a.txt", "a.npz"]
)
def test_what_stands_in_the_place_of_a_file_is_named(oracle, tmp_path, name):
    table, path = write(tmp_path / "t.csv", {"1": "Clear."}), tmp_path / name
    for content, match in (
        (
            "version https://git-lfs.github.com/spec/v1\noid sha256:4d7a\nsize 12345\n",
            "is a pointer of Git LFS, not the",
        ),
        (
            "\n<!DOCTYPE html>\n<html><body>Sign in</body></html>",
            "is a page of HTML, as a site sends in place of a file",
        ),
    ):
        path.write_text(content)
        if name == "a.npz":
            with pytest.raises(InputError, match=match):
                mo.reports({"1": "a"}, chexbert=path).load()
            continue
        assert_refused(oracle("score", table, path, "-m", "rouge-l"), f".*{match}", "references: .*")
        if name != "a.txt":
            assert_refused(oracle("build-index", path, "--out", tmp_path / "I", "-m", "rouge-l"), f".*{match}")
