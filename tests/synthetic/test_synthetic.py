import csv
import json
import re
import shutil
from collections import Counter
from pathlib import Path

import pytest

from metric_oracle.base.errors import InputError
from metric_oracle.base.files import new_folder
from metric_oracle.corpora.label_tables import LABELS, read_labels
from metric_oracle.corpora.reports import read_reports
from metric_oracle.synthetic.corpus import MODELS, SyntheticReport, synthesize, write_synthetic
from support.calls import Calls

BLANK, POSITIVE, NEGATIVE, UNCERTAIN = range(4)


@pytest.fixture(scope="module")
def reports() -> list[SyntheticReport]:
    return list(synthesize(5_000, seed=3))


def read_all(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def tokenize(text: str) -> list[str]:
    return re.sub(r"([/,:.!?()])", r" \1 ", text).split()


def count_sentences(text: str) -> int:
    """Count full stops that end a sentence, and a last sentence without one."""
    plain = re.sub(r"\b([ap]\.m)\.(?=[ ,\n][^A-Z0-9])", r"\1", " ".join(text.split()))
    plain = re.sub(r"\bDr\.|\b\d\.(?=[ \d])", "", plain, flags=re.IGNORECASE)
    return len(re.findall(r"\.(?= |$)", plain)) + (not plain.endswith("."))


def label_of(report: SyntheticReport, name: str) -> int:
    return report.labels[LABELS.index(name)]


# ---- files -----------------------------------------------------------------------------------------------------------


def test_same_seed_gives_the_same_bytes(tmp_path):
    for name in "ab":
        write_synthetic(tmp_path / name, 300, 40, seed=7)
    assert read_all(tmp_path / "a") == read_all(tmp_path / "b")


def test_other_seed_gives_another_corpus(tmp_path):
    for seed in (0, 1):
        write_synthetic(tmp_path / str(seed), 300, 40, seed=seed)
    one, two = read_all(tmp_path / "0"), read_all(tmp_path / "1")
    assert all(one[name] != two[name] for name in one)


def test_files_hold_what_synthesize_yields(tmp_path):
    files = write_synthetic(tmp_path / "out", 120, 30, seed=5)
    assert sorted(files) == ["test", "test_graphs", "test_labels", "train", "train_graphs", "train_labels"]
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == sorted(path.name for path in files.values())
    cells = {BLANK: "", POSITIVE: "1.0", NEGATIVE: "0.0", UNCERTAIN: "-1.0"}
    for split, n, first_id in (("train", 120, 50_000_000), ("test", 30, 50_000_120)):
        expected = list(synthesize(n, seed=5, split=split, first_id=first_id))
        with open(files[split], encoding="utf-8", newline="") as file:
            assert list(csv.reader(file)) == [["study_id", "report"], *([r.study_id, r.text] for r in expected)]
        with open(files[f"{split}_labels"], encoding="utf-8", newline="") as file:
            rows = [[r.study_id, *(cells[state] for state in r.labels)] for r in expected]
            assert list(csv.reader(file)) == [["study_id", *LABELS], *rows]
        graphs = json.loads(files[f"{split}_graphs"].read_text(encoding="utf-8"))
        assert graphs == {r.study_id: r.graph for r in expected}
        assert all(graph["data_split"] == split and graph["data_source"] is None for graph in graphs.values())


def test_blocks_do_not_show_in_the_files(tmp_path, monkeypatch):
    write_synthetic(tmp_path / "whole", 50, 7)
    monkeypatch.setattr("metric_oracle.synthetic.corpus.BLOCK_SIZE", 8)
    steps = Calls()
    write_synthetic(tmp_path / "blocks", 50, 7, progress=steps)
    assert read_all(tmp_path / "whole") == read_all(tmp_path / "blocks")
    assert steps == [("", done, 57) for done in (0, 8, 16, 24, 32, 40, 48, 50, 57)]


def test_empty_folder_is_filled_and_parents_are_made(tmp_path):
    (tmp_path / "empty").mkdir()
    write_synthetic(tmp_path / "empty", 3, 1)
    write_synthetic(tmp_path / "new" / "deep", 3, 1)
    assert read_all(tmp_path / "empty") == read_all(tmp_path / "new" / "deep")


def test_existing_folder_is_refused_and_left_alone(tmp_path):
    (tmp_path / "mine.txt").write_text("keep")
    with pytest.raises(InputError, match=r"^out must be a new or empty folder; got .*Name another"):
        write_synthetic(tmp_path, 3, 1)
    with pytest.raises(InputError, match="out must be a new or empty folder"):
        write_synthetic(tmp_path / "mine.txt", 3, 1)
    assert read_all(tmp_path) == {"mine.txt": b"keep"}


def test_a_failure_leaves_nothing_behind(tmp_path):
    def fail(step, done, total):
        msg = "stop"
        raise KeyboardInterrupt(msg)

    with pytest.raises(KeyboardInterrupt, match="stop"):
        write_synthetic(tmp_path / "out", 3, 1, progress=fail)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("size", [0, -1, 2.0, True, "3"])
def test_bad_sizes_are_refused(tmp_path, size):
    rule = rf"must be an int of at least 1; got {size!r}\. Pass the number of reports\.$"
    with pytest.raises(InputError, match="^n_reports " + rule):
        synthesize(size)
    with pytest.raises(InputError, match="^n_reports " + rule):
        write_synthetic(tmp_path / "out", size, 1)
    with pytest.raises(InputError, match="^n_tests " + rule):
        write_synthetic(tmp_path / "out", 1, size)
    assert list(tmp_path.iterdir()) == []


def test_unknown_split_is_refused():
    with pytest.raises(InputError, match="split must be one of train, test; got 'dev'"):
        synthesize(1, split="dev")


def test_ids_are_unique_and_disjoint(tmp_path):
    files = write_synthetic(tmp_path / "out", 60, 20)
    train, test = (set(json.loads(files[name].read_text())) for name in ("train_graphs", "test_graphs"))
    assert len(train) == 60
    assert len(test) == 20
    assert not train & test
    assert all(re.fullmatch(r"5\d{7}", study_id) for study_id in train | test)


def test_a_short_corpus_begins_a_long_one():
    assert list(synthesize(10)) == list(synthesize(30))[:10]


# ---- graphs ----------------------------------------------------------------------------------------------------------


def test_graph_text_is_the_tokenised_report(reports):
    for report in reports:
        assert report.graph["text"].split(" ") == tokenize(report.text)


def test_entities_lie_where_they_say(reports):
    for report in reports:
        tokens = report.graph["text"].split(" ")
        entities = report.graph["entities"]
        assert list(entities) == [str(key) for key in range(1, len(entities) + 1)]
        last = -1
        for entity in entities.values():
            assert list(entity) == ["tokens", "label", "start_ix", "end_ix", "relations"]
            assert entity["label"] in {"ANAT-DP", "OBS-DP", "OBS-U", "OBS-DA"}
            assert last < entity["start_ix"] <= entity["end_ix"]
            assert " ".join(tokens[entity["start_ix"] : entity["end_ix"] + 1]) == entity["tokens"]
            last = entity["end_ix"]


def test_relations_join_other_entities_of_the_report(reports):
    kinds = Counter()
    for report in reports:
        entities = report.graph["entities"]
        for key, entity in entities.items():
            assert len({tuple(relation) for relation in entity["relations"]}) == len(entity["relations"])
            for kind, target in entity["relations"]:
                assert target in entities
                assert target != key
                kinds[kind] += 1
    assert set(kinds) == {"modify", "located_at", "suggestive_of"}


def test_the_commonest_impression_has_the_known_graph(reports):
    graph = next(r.graph for r in reports if r.text == "No acute cardiopulmonary process.")
    assert graph["text"] == "No acute cardiopulmonary process ."
    assert list(graph["entities"].values()) == [
        {"tokens": "acute", "label": "OBS-DA", "start_ix": 1, "end_ix": 1, "relations": [["modify", "3"]]},
        {"tokens": "cardiopulmonary", "label": "ANAT-DP", "start_ix": 2, "end_ix": 2, "relations": []},
        {"tokens": "process", "label": "OBS-DA", "start_ix": 3, "end_ix": 3, "relations": [["located_at", "2"]]},
    ]


def test_every_certainty_and_an_empty_graph_occur(reports):
    labels = Counter(entity["label"] for r in reports for entity in r.graph["entities"].values())
    assert set(labels) == {"ANAT-DP", "OBS-DP", "OBS-U", "OBS-DA"}
    assert any(not r.graph["entities"] for r in reports)


# ---- labels ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("phrase", "name", "state"),
    [
        (r"^No pneumothorax\.", "Pneumothorax", NEGATIVE),
        (r"^No pleural effusion or pneumothorax\.", "Pleural Effusion", NEGATIVE),
        (r"^Small bilateral pleural effusions\.", "Pleural Effusion", POSITIVE),
        (r"^Possible pneumonia\.", "Pneumonia", UNCERTAIN),
        (r"(?:^|\. )Pneumonia cannot be excluded\.", "Pneumonia", UNCERTAIN),
        (r"^Unchanged moderate cardiomegaly\.", "Cardiomegaly", POSITIVE),
        (r"\b(PICC|tube) terminates in the", "Support Devices", POSITIVE),
    ],
)
def test_labels_follow_from_the_words(reports, phrase, name, state):
    found = [r for r in reports if re.search(phrase, " ".join(r.text.split()))]
    assert found
    assert all(label_of(r, name) == state for r in found)


def test_no_finding_means_nothing_but_devices(reports):
    devices, no_finding = LABELS.index("Support Devices"), LABELS.index("No Finding")
    for report in reports:
        assert len(report.labels) == 14
        assert set(report.labels) <= {BLANK, POSITIVE, NEGATIVE, UNCERTAIN}
        others = [state for i, state in enumerate(report.labels) if i not in (devices, no_finding)]
        expected = BLANK if POSITIVE in others or UNCERTAIN in others else POSITIVE
        assert report.labels[no_finding] == expected


def test_every_label_occurs_present(reports):
    assert all(any(label_of(r, name) == POSITIVE for r in reports) for name in LABELS)


# ---- the shape of the corpus -----------------------------------------------------------------------------------------


def test_shape_of_the_corpus(reports):
    texts = [r.text for r in reports]
    commonest, count = Counter(texts).most_common(1)[0]
    assert commonest == "No acute cardiopulmonary process."
    assert 0.04 <= count / len(texts) <= 0.08
    n_words = [len(re.sub(r"[.,]", " ", text).split()) for text in texts]
    assert 17 <= sum(n_words) / len(texts) <= 23
    n_sentences = Counter(count_sentences(text) for text in texts)
    assert min(n_sentences) == 1
    assert max(n_sentences) <= 8
    assert 6 in n_sentences


def test_typography_of_real_reports_occurs(reports):
    texts = [r.text for r in reports]
    for pattern in (
        r"^1\. .*\s2\. ",
        r"\w\n\w",
        r"___",
        r"\d\.\d cm",
        r"\d mm",
        r"Dr\. ___",
        r"[a-z_]$",
        r"^[A-Z ]{12}",
    ):
        assert any(re.search(pattern, text, flags=re.DOTALL) for text in texts), pattern
    assert all(text.strip() == text and text for text in texts)
    assert all(len(line) <= 79 for text in texts if "\n" in text for line in text.split("\n"))
    assert all(len(run) == 3 for text in texts for run in re.findall(r"_+", text))


def test_tests_repeat_part_of_train(reports):
    known = {r.text for r in reports}
    texts = [r.text for r in synthesize(1_000, seed=3, split="test")]
    assert 0.2 <= sum(text in known for text in texts) / len(texts) <= 0.45


def test_models_answer_the_tests_better_or_worse(tmp_path):
    """Each has a report, a graph and labels for every test report, and gets some of the reports right."""
    plain = write_synthetic(tmp_path / "plain", 20, 200, seed=1)
    steps = Calls()
    paths = write_synthetic(tmp_path / "models", 20, 200, seed=1, models=True, progress=steps)
    assert steps[0] == ("", 0, 20 + 200 * 4)
    assert steps[-1] == ("", 20 + 200 * 4, 20 + 200 * 4)
    assert set(paths) == {*plain, *(f"{m}{kind}" for m in MODELS for kind in ("", "_graphs", "_labels"))}
    for name, path in plain.items():
        assert path.read_bytes() == paths[name].read_bytes()
    tests = read_reports(paths["test"])
    shared = []
    for model in MODELS:
        written = read_reports(paths[model])
        assert written.ids == tests.ids
        graphs = json.loads(paths[f"{model}_graphs"].read_text())
        assert [graphs[study]["text"] for study in written.ids] == [" ".join(tokenize(t)) for t in written.texts]
        assert read_labels(paths[f"{model}_labels"]).ids == tests.ids
        shared.append(sum(a == b for a, b in zip(written.texts, tests.texts, strict=True)))
    assert shared == sorted(shared, reverse=True)
    assert len(set(shared)) == 3


def test_folders_of_killed_writers_go(tmp_path):
    dead, of_another = (tmp_path / name for name in (".c.unfinished-1", ".d.unfinished-1"))
    for folder in (dead, of_another):
        folder.mkdir()
        (folder / "train.csv").write_text("half")
    with new_folder(tmp_path / "c") as alive:
        (alive / "train.csv").write_text("half")
        write_synthetic(tmp_path / "c", 3, 2)
        assert sorted(path.name for path in tmp_path.iterdir()) == [alive.name, of_another.name, "c"]
        assert (alive / "train.csv").read_text() == "half"
        shutil.rmtree(tmp_path / "c")


def test_a_write_that_fails_leaves_nothing(tmp_path):
    def fail(step, done, total):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        write_synthetic(tmp_path / "c", 3, 2, progress=fail)
    assert not list(tmp_path.iterdir())
