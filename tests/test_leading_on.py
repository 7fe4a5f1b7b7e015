"""Messages about files that people have say what to do next."""

import json
import os
import subprocess
import sys

import pytest

import metric_oracle as mo
from metric_oracle.base.errors import InputError
from support import assert_refused, write

TEXTS = {"3521": "Clear.", "3522": "Edema."}
NOTES = "references: |predictions: |reports: |ids: "


@pytest.mark.parametrize("form", ["{}.png", "images/{}.dcm", "{}.nii.gz"])
def test_names_of_images_for_ids(oracle, tmp_path, form):
    references = write(tmp_path / "r.csv", TEXTS)
    predictions = write(tmp_path / "p.csv", {form.format(study): text for study, text in TEXTS.items()})
    match = (
        r"score: references and predictions must share at least half of the ids of the side with fewer; got none in "
        r"common, .* Ids differ by the folder or ending of a file name "
        rf"\('3521', '{form.format(3521)}'\): write the ids of the studies\.$"
    )
    assert_refused(oracle("score", references, predictions), match, NOTES)


def test_ids_with_a_full_stop_are_no_names_of_files(oracle, tmp_path):
    references, predictions = write(tmp_path / "r.csv", {"a.1": "x"}), write(tmp_path / "p.csv", {"a.2": "x"})
    code, _, err = oracle("score", references, predictions)
    assert (code, "Ids differ" in err) == (2, False)


def test_a_whole_annotation_against_predictions_of_its_tests(oracle, tmp_path):
    records = {
        "train": [{"id": "1", "report": "a"}, {"id": "2", "report": "b"}],
        "test": [{"id": "3", "report": "small effusion"}],
    }  # fmt: skip
    (tmp_path / "annotation.json").write_text(json.dumps(records))
    predictions = write(tmp_path / "p.csv", {"3": "small effusion"})
    words = ["score", tmp_path / "annotation.json", predictions, "-m", "bleu"]
    match = r"score: .* 2 without a prediction .* The references are of all splits: --split test takes those of the"
    assert_refused(oracle(*words), match, NOTES)
    code, out, err = oracle(*words, "--split", "test")
    assert (code, json.loads(out)["bleu-2"], "all splits" in err) == (0, 1.0, False)
    match = r"of all splits: `mo\.reports\(\.\.\., mo\.Read\(split='test'\)\)` takes"
    with pytest.raises(InputError, match=match), pytest.warns(UserWarning, match="^(references|ids): ") as told:
        mo.score(tmp_path / "annotation.json", predictions, "bleu")
    assert [str(one.message).partition(":")[0] for one in told] == ["references", "ids"]
    assert "all splits, 3 of 3 rows" in str(told[0].message)


def test_a_column_of_chats(oracle, named, tmp_path):
    chat = [{"role": "user", "content": "Report?"}, *[{"role": "assistant", "content": "Clear."}] * 2]
    (tmp_path / "p.jsonl").write_text(json.dumps({"id": "3521", "messages": chat}))
    words = ["score", write(tmp_path / "r.csv", TEXTS), named("chats", tmp_path / "p.jsonl", text_column="messages")]
    match = (
        r"score: .* has a chat of 3 messages in row 1, of which 2 are an assistant's text\. Write the content of the "
        "message that is the report, usually"
    )
    assert_refused(oracle(*words), match, NOTES)


def test_one_text_for_completions():
    with pytest.raises(
        InputError, match=r"completions must be a list of texts, .*; got one text\. Put it into a list\."
    ):
        mo.reward("rouge-l", column="truth")(completions="Clear.", truth=["Clear."])


def test_a_deleted_working_folder(tmp_path):
    code = (
        "import os, sys\nos.mkdir('gone'); os.chdir('gone'); os.rmdir('../gone')\n"
        "from metric_oracle.cli import main\nsys.argv = ['oracle', 'build-index', 'a.csv', '--out', 'I']\nmain()"
    )
    paths = os.pathsep.join(os.path.abspath(path or ".") for path in sys.path)
    found = subprocess.run(
        [sys.executable, "-c", code],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": paths},
    )
    assert found.returncode == 2
    assert "the working folder of this terminal was deleted: change to another folder." in found.stderr
