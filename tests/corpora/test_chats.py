"""Files of chats and of batches: the only answer is the report, of several none."""

import json

import pytest

import metric_oracle as mo
from metric_oracle.base.errors import InputError
from metric_oracle.corpora.predictions import as_predictions
from metric_oracle.corpora.reports import as_reports

TEXTS = {"50000401": "No edema is seen.", "50000402": "Small left effusion.", "50000403": "Clear lungs."}
MESSAGES = {
    "roles": lambda text: [{"role": "user", "content": "Write it."}, {"role": "assistant", "content": text}],
    "llava": lambda text: [{"from": "human", "value": "<image>\nWrite it."}, {"from": "gpt", "value": text}],
    "parts": lambda text: [
        {"role": "user", "content": [{"type": "image"}, {"type": "text", "text": "Write it."}]},
        {"role": "assistant", "content": [{"type": "text", "text": text}]},
    ],
    "completion": lambda text: [{"role": "assistant", "content": text}],
}
BODIES = {
    "chat": lambda text: {"choices": [{"index": 0, "message": {"role": "assistant", "content": text}}]},
    "responses": lambda text: {
        "output": [
            {"type": "reasoning", "summary": []},
            {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": text}]},
        ]
    },
}


def lines(path, records):
    path.write_text("".join(json.dumps(record) + "\n" for record in records))
    return path


def pairs(reports):
    return dict(zip(reports.ids, reports.texts, strict=True))


@pytest.mark.parametrize("made", MESSAGES.values(), ids=MESSAGES)
@pytest.mark.parametrize("column", ["messages", "conversations", "completion"])
def test_the_only_answer_of_a_chat_is_the_report(tmp_path, made, column):
    records = [{"study_id": study, "image": "a.png", column: made(text)} for study, text in TEXTS.items()]
    for given in (lines(tmp_path / "c.jsonl", records), records, {study: made(text) for study, text in TEXTS.items()}):
        assert pairs(as_predictions(given)) == pairs(as_reports(given)) == TEXTS
    chats = [made(text) for text in TEXTS.values()]
    assert mo.score([*TEXTS.values()], chats, "rouge-l").mean()["rouge-l"] == 1
    assert mo.read_samples([[chat, chat] for chat in chats]).texts == [[text, text] for text in TEXTS.values()]
    twice = [{"study_id": study, column: made(text) * 2} for study, text in TEXTS.items()]
    with pytest.raises(InputError, match=r"a chat of \d messages in row 1, of which 2 are"):
        as_predictions(twice)


def test_a_chat_beside_a_column_of_texts_is_asked_for(tmp_path):
    records = [{"study_id": i, "messages": MESSAGES["roles"](t), "output": t} for i, t in TEXTS.items()]
    with pytest.raises(InputError, match="candidates are 'messages', 'output'"):
        as_predictions(records)


@pytest.mark.parametrize("body", BODIES.values(), ids=BODIES)
def test_answers_of_a_batch(tmp_path, oracle, body):
    records = [
        {"id": f"batch_req_{i}", "custom_id": i, "response": {"status_code": 200, "body": body(text)}, "error": None}
        for i, text in TEXTS.items()
    ]
    failed = {"id": "batch_req_x", "custom_id": "50000404", "response": None, "error": {"code": "batch_expired"}}
    path = lines(tmp_path / "batch.jsonl", [*records, failed])
    found = as_predictions(path)
    assert pairs(found) == TEXTS
    assert found.states["missing"] == ["50000404"]
    assert "answers of a batch" in found.told


def test_answers_of_anthropics_batch(tmp_path):
    message = {"role": "assistant", "content": [{"type": "text", "text": "Clear."}]}
    records = [
        {"custom_id": "50000401", "result": {"type": "succeeded", "message": message}},
        {"custom_id": "50000402", "result": {"type": "errored", "error": {"type": "x"}}},
    ]
    assert pairs(as_predictions(lines(tmp_path / "b.jsonl", records))) == {"50000401": "Clear."}


def test_several_choices_of_a_batch_are_samples(tmp_path):
    choices = [{"message": {"role": "assistant", "content": text}} for text in ("Clear.", "No edema.")]
    records = [{"custom_id": i, "response": {"status_code": 200, "body": {"choices": choices}}} for i in TEXTS]
    path = lines(tmp_path / "b.jsonl", records)
    assert mo.read_samples(path).texts == [["Clear.", "No edema."]] * 3
    with pytest.raises(InputError, match="a list of 2 texts in row 1"):
        as_predictions(path)


@pytest.mark.parametrize(
    ("cell", "match"),
    [
        ([["No edema.", None], ["Effusion.", [[0, 0, 1, 1]]]], "a list of 2 parts in row 1 .* sentences with boxes"),
        ([{"sentence_en": "No edema.", "boxes": []}], r"a list of 1 parts in row 1 .* Join the sentences"),
        (["No edema.", "Effusion."], "a list of 2 texts in row 1: .* or sentences of a report"),
        ({"lungs": "Clear lungs.", "heart": "Normal."}, "an object in place of a text in row 1, with 'lungs', 'heart'"),
        ([{"role": "user", "content": "Write it."}], "a chat of 1 messages in row 1, of which 0"),
    ],
)
def test_what_is_not_one_text_is_named(tmp_path, cell, match):
    path = lines(tmp_path / "p.jsonl", [{"study_id": "50000401", "findings": cell}])
    for read in (as_predictions, as_reports):
        with pytest.raises(InputError, match=match) as caught:
            read(path)
        assert "edema" not in str(caught.value)
        assert "Clear" not in str(caught.value)
