"""Marks of files and programs within texts are counted in a note; other ways to write a CSV file are read right."""

import json

import pytest

import metric_oracle as mo
from metric_oracle.base.errors import InputError
from metric_oracle.corpora import streams
from metric_oracle.corpora.text_files import usual_quotes
from support import write

TEXTS = ["Clear lungs.", "Small left effusion.", "Mild edema."]
MARKED = {
    "as a written list (['...'])": [
        "['{}']", '["{}"]', "('{}',)", "array(['{}'], dtype=object)", '{{"text": "{}"}}', "['{}' 'Normal.']",
        "[{{'role': 'assistant', 'content': '{}'}}]", "{{'{}'}}", " ['{}'] ",
        "np.str_('{}')", "0    {}\nName: report, dtype: object",
    ],
    "in brackets, as a written list": ["[{}]"],
    "as written bytes (b'...')": ["b'{}'", 'b"{}"', "u'{}'"],
    "with tokens of a model (</s>)": [
        "<s>{}</s>", "{}<|im_end|>", "[CLS] {} [SEP]", "<PAD> {} <PAD>", "{}<end_of_turn>", "{} [UNK]",
        "startseq {} endseq",
        "\u0120{}", "\u2581{}", "{} ##ed", "ede@@ ma {}", "{}<0x0A>", "<start>{}<end>", "[MASK] {}", "{}<unused0>",
        "<\uff5cend\uff5c>{}", "<image> {}", "{}</w>",
    ],
    "with a template of a model (ASSISTANT:)": [
        "[INST] {} [/INST]", "USER: Describe. ASSISTANT: {}", "### Response:\n{}", "Assistant: {}",
        "<think>A heart.</think><answer>{}</answer>", "<<SYS>>{}", "\\boxed{{{}}}", "<report>{}</report>",
    ],
    "in quotes": [
        "'{}'", '"{}"', '""{}""', "\u201c{}\u201d", "\u201e{}\u201c", "\u00ab{}\u00bb", "`{}'", "=\"{}\"", ' "{}"',
        "'The patient's {}'", '"The "normal" {}"',
    ],
    r"with escapes (\n, \")": [r"{}\nNo edema.", r"{}\r\nNo edema.", r'The \"heart\": {}', '""Normal"": {}', "{}_x000D_"],  # noqa: E501
    "with a heading (Findings:)": ["Findings: {}", "{} IMPRESSION: Normal.", "**Impression:** {}", "## Findings\n{}"],
    "with letters and their accents apart (Unicode NFD)": ["Oede\u0300me: {}"],
    "with HTML (&amp;)": ["A &amp; B: {}", "&quot;{}&quot;", "{}<br>Normal.", "&#39;{}&#39;"],
}  # fmt: skip
PLAIN = [
    '"Normal" chest.', "[Comparison] {}", "(AP) {} (lateral)", r"left\right and\or {}", "{} 5 < 6 & 7", "'tis normal.",
    '"A" and "B"', "'A', {} and 'C'", "(clear)", "the patients'", "Incidental finding: {}", "Findings are as above. {}",
]  # fmt: skip
NOTE = "marks that count as words of the reports: 3 "


@pytest.fixture
def reference(tmp_path):
    return write(tmp_path / "reference.csv", dict(enumerate(TEXTS)))


@pytest.mark.parametrize(("kind", "form"), [(kind, form) for kind, forms in MARKED.items() for form in forms])
def test_marks_are_counted(tmp_path, kind, form):
    path = write(tmp_path / "a.csv", {i: form.format(text) for i, text in enumerate(TEXTS)})
    for found in (mo.read_reports(path), mo.read_predictions(path)):
        assert found.texts == [form.format(text) for text in TEXTS]
        assert found.marks == {kind: 3}
        assert found.source.endswith(f"; {NOTE}{kind}")


@pytest.mark.parametrize("form", PLAIN)
def test_other_texts_are_not_counted(tmp_path, form):
    found = mo.read_reports(write(tmp_path / "a.csv", {i: form.format(text) for i, text in enumerate(TEXTS)}))
    assert found.marks == {}
    assert "marks" not in found.source


def test_every_command_tells_them(oracle, tmp_path, reference):
    marked = write(tmp_path / "marked.csv", {i: f"['{text}']" for i, text in enumerate(TEXTS)})
    built = tmp_path / "INDEX"
    assert oracle("build-index", reference, "--out", built)[0] == 0
    study = ["study", built, reference, f"M={marked}", "-m", "bleu", "--out", tmp_path / "study"]
    for words in (
        ["build-index", marked, "--out", tmp_path / "MARKED", "-m", "bleu"],
        ["build-index", marked, "--out", tmp_path / "SET", "-m", "bleu", "--shard-rows", "2"],
        ["score", reference, marked, "-m", "bleu"],
        ["score", marked, reference, "-m", "bleu"],
        ["retrieve", built, marked, "-m", "bleu"],
        ["overlap", built, f"M={marked}"],
        study,
    ):
        code, _, err = oracle(*words)
        assert code == 0, err
        assert err.count(NOTE + "as a written list") == 1, words


def test_python_warns(tmp_path, reference):
    texts = {str(i): f"['{text}']" for i, text in enumerate(TEXTS)}
    built = mo.build_index(reference, tmp_path / "INDEX", metrics="bleu")
    samples = {study: [text] for study, text in texts.items()}
    for call in (
        lambda: mo.score(reference, texts, "bleu"),
        lambda: mo.score(reference, mo.read_predictions(write(tmp_path / "m.csv", texts)), "bleu"),
        lambda: mo.build_index(texts, tmp_path / "MARKED", metrics="bleu"),
        lambda: mo.retrieve(built, texts, "bleu"),
        lambda: mo.consensus(samples, "bleu"),
    ):
        with pytest.warns(UserWarning, match=f"{NOTE}as a written list") as told:
            call()
        assert len(told) == 1


def test_rewards_tell_the_marks_of_a_kind_once():
    completions = [f"<think>A heart.</think><answer>{text}</answer>" for text in TEXTS]
    chats = [[{"role": "assistant", "content": text}] for text in completions]
    for rewarded, given in ((mo.reward("rouge-l"), {"reference": TEXTS}), (mo.consensus_reward("rouge-l"), {})):
        for texts in (completions, chats):
            columns = {"prompts": ["a"] * len(texts), "completions": texts, **given}
            if texts is completions:
                with pytest.warns(
                    UserWarning, match="completions: marks that count as words .*: 3 with a template"
                ) as told:
                    rewarded(**columns)
                assert len(told) == 1
            rewarded(**columns)  # a warning would fail
    with pytest.warns(UserWarning, match="ground_truth: marks that count as words .*: 3 with tokens"):
        mo.reward("rouge-l")(completions=TEXTS, ground_truth=[f"{text}<eos>" for text in TEXTS])


# Ways to write CSV


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("blank.csv", 'study_id, report\n0, "Clear, lungs."\n1, "Small ""left"" effusion."\n'),
        ("blank.csv", 'study_id; "report" \n0; "Clear, lungs." \n1;   "Small ""left"" effusion."\n'),
        ("blank.tsv", 'study_id\t "report"\n0\t "Clear, lungs."\n1\t "Small ""left"" effusion."\n'),
        ("escape.csv", 'study_id,report\n0,"Clear, lungs."\n1,"Small \\"left\\" effusion."\n'),
        ("nested.csv", 'study_id,report\n0,"Clear, lungs."\n1,"Small "left" effusion."\n'),
        ("sep.csv", 'sep=;\r\nstudy_id;report\r\n0;Clear, lungs.\r\n1;"Small ""left"" effusion."\r\n'),
        ("sep.csv", '"sep=\t"\nstudy_id\treport\n0\tClear, lungs.\n1\t"Small ""left"" effusion."\n'),
        ("above.csv", '# from PACS\n# a, b\nstudy_id,report\n0,"Clear, lungs."\n1,"Small ""left"" effusion."\n'),
    ],
)
def test_other_ways_to_write_csv(tmp_path, monkeypatch, name, content):
    path = tmp_path / name
    path.write_bytes(content.encode())
    texts = ["Clear, lungs.", 'Small "left" effusion.']
    for found in (mo.read_reports(path), mo.read_predictions(path)):
        assert (found.ids, found.texts, found.marks) == (["0", "1"], texts, {})
    monkeypatch.setattr(streams, "AT_ONCE", 1)
    pieces = [*streams.stream_reports(path, 1)]
    assert [text for piece in pieces for text in piece.texts] == texts


def test_what_stood_above_the_header_is_told(tmp_path):
    path = tmp_path / "a.csv"
    path.write_text("sep=;\nid;report\n0;Clear.\n")
    assert "separator as its first line names it" in mo.read_reports(path).source
    path.write_text("#made\nid,report\n0,Clear.\n")
    assert "without 1 comment line above the header" in mo.read_predictions(path).source
    path.write_text("made by PACS\nid,report\n0,Clear.\n")
    with pytest.raises(InputError, match=r"1 column in the header and 2 in row 2 .* Delete lines above the header"):
        mo.read_reports(path)
    with pytest.raises(
        InputError, match=r"2 cells in row 2 .* Quote the reports, or delete the lines above the header"
    ):
        mo.read_predictions(path)
    path.write_text("#id,report\n0,Clear.\n")  # a header
    assert mo.read_reports(path, mo.Read(id_column="#id")).texts == ["Clear."]


def test_a_report_of_a_file_without_header_is_no_comment(tmp_path):
    (tmp_path / "a.csv").write_text("# 1: clear.\nEdema.\n")
    (tmp_path / "ids.txt").write_text("a\nb\n")
    assert mo.read_predictions(tmp_path / "a.csv", mo.Read(ids=tmp_path / "ids.txt")).texts == ["# 1: clear.", "Edema."]


@pytest.mark.parametrize(
    "text",
    [
        'id,report\n1, "normal" heart, clear\n',
        'id,report\n1,"a, ""b"", \nc"\n2,"d"\n', 'id,report\n1,"path\\"\n2,"x"\n',
        'id,report\n1,6\\" tube\n',
    ],
)  # fmt: skip
def test_what_is_usual_stays(text):
    assert usual_quotes(text, ",") == text


@pytest.mark.parametrize(
    ("cell", "text"),
    [('""Clear.""', '"Clear."'), ('"The "heart" is ""normal"""', 'The "heart" is "normal"')],
)
def test_quotes_that_are_not_doubled(tmp_path, cell, text):
    path = tmp_path / "a.csv"
    path.write_text(f"study_id,report\n1,{cell}\n2,Edema.\n3,\n")
    found = mo.read_predictions(path)
    assert found.texts == [text, "Edema.", ""]


def test_a_json_array_named_as_json_lines(oracle, tmp_path, reference):
    records = [{"study_id": i, "report": text} for i, text in enumerate(TEXTS)]
    path = tmp_path / "a.jsonl"
    path.write_text(json.dumps(records, indent=1))
    assert mo.read_reports(path).texts == mo.read_predictions(path).texts == TEXTS
    words = ["build-index", path, "--out", tmp_path / "SET", "-m", "bleu", "--shard-rows", "2"]
    assert oracle(*words)[0] == 0
    path.write_text('["Clear."]')
    with pytest.raises(
        InputError, match=r"has no JSON object in line 1: it begins with a list\. Write one object in each line"
    ):
        mo.read_reports(path)
