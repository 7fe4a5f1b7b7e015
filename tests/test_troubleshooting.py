"""docs/troubleshooting.md: every command of the page causes the message whose words are its heading."""

import re
import shlex
from pathlib import Path

import pytest

import metric_oracle as mo
from metric_oracle.synthetic.example import write_example
from support import write

PAGE = (Path(__file__).parents[1] / "docs/troubleshooting.md").read_text(encoding="utf-8")
ENTRIES = re.findall(r"^## (.*)\n\n```console\n\$ oracle (.*)\n```\n\n(.+)$", PAGE, re.MULTILINE)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("trouble") / "try"
    write_example(folder)
    write(folder / "names.csv", [("1", "No edema.")], header=("a", "b"))
    write(folder / "twice.csv", [("1", "No edema."), ("1", "Edema.")])
    (folder / "comma.csv").write_text("study_id,report\n1,No edema, no effusion.\n")
    (folder / "blank.csv").write_text("study_id,report\n1,\n2,___\n")
    write(folder / "sections.csv", [("1", "No edema.", "Normal.")], header=("study_id", "findings", "impression"))
    write(folder / "short.csv", {"50000400": "No edema."})
    (folder / "mine.csv").write_text("study_id,my_score\n50000400,0.5\n")
    mo.build_index(str(folder / "train.csv"), folder / "READY", metrics="bleu")
    mo.build_index(
        mo.reports(folder / "sections.csv", mo.Read(section="findings")), folder / "FINDINGS", metrics="bleu"
    )
    for name, references in (("a", "test"), ("b", "strong"), ("edited", "test")):
        mo.score(folder / f"{references}.csv", folder / "weak.csv", "bleu").write(folder / f"{name}.csv")
    edited = folder / "edited.csv"
    edited.write_text(edited.read_text().replace("0.", "0.1", 1))
    return folder


def test_the_page_has_twenty_messages():
    assert len(ENTRIES) == PAGE.count("\n## ") == len({words for words, *_ in ENTRIES}) == 20


@pytest.mark.parametrize(("words", "command"), [entry[:2] for entry in ENTRIES], ids=[entry[0] for entry in ENTRIES])
def test_a_command_causes_the_message_of_its_heading(words, command, folder, oracle, monkeypatch):
    if "--encoder" in command:
        pytest.importorskip("transformers")
    monkeypatch.chdir(folder)
    monkeypatch.setenv("COLUMNS", "1000")
    code, _, said = oracle(*shlex.split(command))
    assert code == 2
    assert words in said.splitlines()[-1]
    assert not (folder / "NEW").exists()
