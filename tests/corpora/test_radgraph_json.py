import gzip
import json

import numpy as np
import pytest

from metric_oracle.base.errors import InputError
from metric_oracle.corpora import radgraph_json, text_files
from metric_oracle.corpora.radgraph_json import align_graphs, read_graphs


def entity(tokens, label, *relations):
    return {"tokens": tokens, "label": label, "start_ix": 0, "end_ix": 0, "relations": [list(r) for r in relations]}


def graph(text, entities=None, **more):
    return {"text": text, "entities": entities or {}, "data_source": None, "data_split": "inference", **more}


FIRST = graph(
    "No effusion . Left lung clear .",
    {
        "1": entity("effusion", "OBS-DA"),
        "2": entity("Left", "ANAT-DP", ("modify", "3")),
        "3": entity("lung", "ANAT-DP"),
        "4": entity("clear", "OBS-DP", ("located_at", "3"), ("modify", "9")),
    },
)
SECOND = graph("lung clear", {"1": entity("clear", "OBS-DP", ("located_at", "2")), "2": entity("lung", "ANAT-DP")})
LONG = graph("Lung clear", {"1": entity("Lung", "Anatomy::definitely present")})


@pytest.fixture(autouse=True, params=[1 << 24, 5, 40], ids=["whole", "by 5", "by 40"])
def piece(request, monkeypatch):
    """Read files whole and in pieces: all that follows holds for both."""
    monkeypatch.setattr(text_files, "PIECE", request.param)


def write(folder, content, name="graphs.json"):
    path = folder / name
    content = content if isinstance(content, str) else json.dumps(content)
    path.write_bytes(gzip.compress(content.encode()) if name.endswith(".gz") else content.encode())
    return path


def test_physionet_layout(tmp_path):
    data = {"p10/p10000032/s50000001.txt": FIRST, "p10/p10000032/s50000002.txt": SECOND, "p1/s50000003.txt": graph("")}
    graphs = read_graphs(write(tmp_path, data))
    assert (graphs.keys, graphs.keyed_by, graphs.schema) == (["50000001", "50000002", "50000003"], "study", "radgraph")
    assert graphs.texts == ["No effusion . Left lung clear .", "lung clear", ""]
    assert graphs.entity_ptr.tolist() == [0, 4, 6, 6]
    assert [graphs.tokens[i] for i in graphs.entity_token] == ["effusion", "Left", "lung", "clear", "clear", "lung"]
    assert [graphs.labels[i] for i in graphs.entity_label] == [
        "OBS-DA", "ANAT-DP", "ANAT-DP", "OBS-DP", "OBS-DP", "ANAT-DP"
    ]  # fmt: skip
    assert graphs.tokens == ["effusion", "Left", "lung", "clear"]
    assert graphs.relation_ptr.tolist() == [0, 2, 3, 3]
    assert graphs.relation_source.tolist() == [1, 3, 0]
    assert graphs.relation_target.tolist() == [2, 2, 1]
    assert [graphs.relation_types[i] for i in graphs.relation_type] == ["modify", "located_at", "located_at"]
    assert graphs.n_dangling == 1
    assert graphs.entity_ptr.dtype == graphs.relation_ptr.dtype == np.int64
    for column in (graphs.entity_token, graphs.entity_label, graphs.relation_source, graphs.relation_type):
        assert column.dtype == np.int32


@pytest.mark.parametrize("name", ["graphs.json", "graphs.json.gz"])
def test_package_layout_leaves_out_failures(tmp_path, name):
    graphs = read_graphs(write(tmp_path, {"0": FIRST, "1": SECOND, "3": SECOND}, name))
    assert (graphs.keys, graphs.keyed_by) == (["0", "1", "3"], "position")


def test_list_of_one_key_objects_with_long_labels(tmp_path):
    graphs = read_graphs(write(tmp_path, "\n " + json.dumps([{"0": LONG}, {"0": graph("x")}], indent=1) + "\n"))
    assert (graphs.keys, graphs.keyed_by, graphs.schema) == (["0", "1"], "position", "radgraph-xl")


def test_cache_keyed_by_study_id(tmp_path):
    graphs = read_graphs(write(tmp_path, {"50000001": FIRST, "50000001+": FIRST, "7": SECOND}))
    assert (graphs.keys, graphs.keyed_by) == (["50000001", "50000001+", "7"], "study")


def test_numbers_that_do_not_ascend_from_zero_are_study_ids(tmp_path):
    assert read_graphs(write(tmp_path, {"1": FIRST, "2": SECOND})).keyed_by == "study"
    assert read_graphs(write(tmp_path, {"0": FIRST, "2": SECOND, "1": SECOND})).keyed_by == "study"


@pytest.mark.parametrize("text_is_outside", [True, False])
def test_two_annotators(tmp_path, text_is_outside):
    levels = {"labeler_1": FIRST, "labeler_2": SECOND}
    if text_is_outside:
        levels = {name: {"entities": level["entities"]} for name, level in levels.items()} | {"text": "lung clear"}
    path = write(tmp_path, {"p1/s50000001.txt": levels})
    graphs = read_graphs(path, annotator="labeler_2")
    assert graphs.texts == ["lung clear"]
    assert graphs.entity_ptr.tolist() == [0, 2]
    for annotator in (None, "labeler_3"):
        with pytest.raises(InputError, match=r"annotator must be one of .*'labeler_1', 'labeler_2'\. Pass one"):
            read_graphs(path, annotator=annotator)


def test_annotator_without_such_a_level(tmp_path):
    with pytest.raises(InputError, match=r"annotator must be one of .*has no annotator level"):
        read_graphs(write(tmp_path, {"0": FIRST}), annotator="labeler_1")


@pytest.mark.parametrize(
    ("content", "match"),
    [
        ("", r"is empty\. Fetch it again"),
        ("{}", r"has no graph\. Check the file"),
        ("[]", r"has no graph\. Check the file"),
        ("3", "is not a whole JSON object of graphs .*: it breaks after 0 graphs"),
        ("\ufeff", r"is empty\. Fetch it again"),
        ("{", "breaks after 0 graphs"),
        (json.dumps({"0": FIRST, "1": SECOND})[:-1], "breaks after 2 graphs"),
        (json.dumps({"0": FIRST, "1": SECOND})[:-30], "breaks after 1 graphs"),
        (json.dumps({"0": FIRST}) + "x", "breaks after 1 graphs"),
        (json.dumps({"0": FIRST})[:-1] + ";", "breaks after 0 graphs|breaks after 1 graphs"),
        ('{"0" 5}', "breaks after 0 graphs"),
        ([FIRST], "breaks after 0 graphs"),
        ([[1]], "breaks after 0 graphs"),
        ({"s50000001": FIRST, "50000001": FIRST}, "an id occurs more than once in the keys of .*: '50000001'"),
        ({"0": "text"}, "each graph must have entities .* got another form for '0'"),
        ({"0": {"text": "x"}}, "each graph must have entities"),
        ({"0": graph("x", {"1": {"tokens": "x", "label": "OBS-DP"}})}, "each graph must have entities"),
        ({"0": graph("x", {"1": entity(["x"], "OBS-DP")})}, "each graph must have entities"),
        ({"0": graph("x", {"1": entity("x", "OBS-DP", ("modify",))})}, "each graph must have entities"),
        ({"0": graph("x", {"1": entity(5, "OBS-DP")})}, "tokens must be text everywhere"),
        ({"0": graph("x", {"1": entity("x", None)})}, "label must be text everywhere"),
        ({"0": graph("x", {"1": entity("x", "OBS-DP", (5, "1"))})}, "relation type must be text everywhere"),
        ({"0": graph(5)}, "text must be text everywhere"),
        (
            {"0": graph("x", {"1": entity("x", "Finding")})},
            "has labels of entities that are neither RadGraph's nor RadGraph-XL's",
        ),
        ({"0": FIRST, "1": LONG}, "labels of entities must be of one schema; got radgraph and radgraph-xl"),
    ],
)
def test_bad_files(tmp_path, content, match):
    with pytest.raises(InputError, match=match) as caught:
        read_graphs(write(tmp_path, content))
    assert "effusion" not in str(caught.value)


def test_absent_file(tmp_path):
    with pytest.raises(InputError, match=r"there is no file .*absent"):
        read_graphs(tmp_path / "absent.json")


# Joins

REPORTS = ["No effusion. Left lung clear.", "lung\n clear", "Never annotated."]


def test_align_by_study(tmp_path):
    graphs = read_graphs(write(tmp_path, {"p1/s50000002.txt": SECOND, "p1/s50000001.txt": FIRST}))
    joined = align_graphs(graphs, ["s50000001", "50000002", "50000003"], REPORTS)
    assert joined.tolist() == [1, 0, -1]
    assert joined.dtype == np.int64


def test_align_by_study_needs_no_text(tmp_path):
    graphs = read_graphs(write(tmp_path, {"x": {"entities": {}}}))
    assert graphs.texts == [None]
    assert align_graphs(graphs, ["x"], ["Clear."]).tolist() == [0]


def test_align_refuses_graphs_of_other_sections(tmp_path):
    graphs = read_graphs(write(tmp_path, {"a": FIRST, "b": SECOND, "c": graph("Other text")}))
    with pytest.raises(
        InputError, match=r"got 1 equal texts among 3 joined by study id in .*\.json\. They describe other sec"
    ):
        align_graphs(graphs, ["a", "b", "c"], ["No effusion. Left lung clear.", "Normal.", "Clear."])
    assert align_graphs(graphs, ["a", "b", "c"], [*REPORTS[:2], "Clear."]).tolist() == [0, 1, 2]


def test_align_refuses_foreign_ids(tmp_path):
    graphs = read_graphs(write(tmp_path, {"a": FIRST}))
    with pytest.raises(
        InputError, match=r"ids of the reports must occur among the study ids of .*\.json; got none of 1 reports"
    ):
        align_graphs(graphs, ["b"], REPORTS[:1])


def test_align_by_position(tmp_path):
    # One of a hundred may differ: the package annotates the word None where a report is empty.
    graphs = read_graphs(write(tmp_path, {str(place): SECOND for place in range(99)} | {"99": graph("None")}))
    ids = [str(1000 - place) for place in range(100)]
    assert align_graphs(graphs, ids, ["lung clear"] * 99 + [""]).tolist() == list(range(100))


def test_align_by_text_where_order_or_number_differs(tmp_path):
    graphs = read_graphs(write(tmp_path, {"0": SECOND, "1": FIRST, "2": SECOND}))
    assert align_graphs(graphs, ["a", "b", "c"], REPORTS).tolist() == [1, 0, -1]
    assert align_graphs(graphs, ["a", "b"], REPORTS[:2]).tolist() == [1, 0]


def test_align_by_position_needs_texts(tmp_path):
    graphs = read_graphs(write(tmp_path, [{"0": {"entities": {}}}]))
    match = r"graphs keyed by position must carry the reports' texts; got no equal text among \d+ graphs of .*\.json"
    with pytest.raises(InputError, match=match):
        align_graphs(graphs, ["a"], ["Clear."])


def test_align_needs_as_many_texts_as_ids(tmp_path):
    graphs = read_graphs(write(tmp_path, {"0": FIRST}))
    with pytest.raises(InputError, match="texts must be as many as ids; got 1 texts and 2 ids"):
        align_graphs(graphs, ["a", "b"], ["Clear."])


def test_other_encodings(tmp_path):
    content = json.dumps({"50000001": FIRST, "50000002": graph("Größe")}, ensure_ascii=False)
    for i, raw in enumerate((content.encode("latin-1"), content.encode(), content.encode("utf-8-sig"))):
        path = tmp_path / f"{i}.json"
        path.write_bytes(raw)
        assert read_graphs(path).texts[1] == "Größe"
    binary, nul = r"^.* is a binary file, which its ending does not say", r"^.* has a NUL byte in line 1, which no"
    for raw, match in ((content.encode() + b"\0", nul), (b"PK\x03\x04" + content.encode(), binary)):
        path.write_bytes(raw)
        with pytest.raises(InputError, match=match):
            read_graphs(path)


def test_a_broken_file_is_not_read_to_its_end(tmp_path, monkeypatch, piece):
    content = '{"50000001": {"text": "' + 4000 * "x"
    path = write(tmp_path, content)
    monkeypatch.setattr(text_files, "PIECE", 100)
    monkeypatch.setattr(radgraph_json, "LONGEST", 1000)
    read, pieces = [], radgraph_json.text_pieces
    noted = lambda *given: (read.append(some) or some for some in pieces(*given))  # noqa: E731
    monkeypatch.setattr(radgraph_json, "text_pieces", noted)
    with pytest.raises(InputError, match=r"breaks after 0 graphs\. Fetch or make it again\.$"):
        read_graphs(path)
    assert 1000 < sum(map(len, read)) < 1300
