"""Chats: the text that a model, or a radiologist in its place, gave as the one answer of a list of messages.

Read are messages as OpenAI, Hugging Face (`role`, `content`) and LLaVA (`from`, `value`) write them, and the answers of
a batch: OpenAI's `response` and Anthropic's `result`.
"""

from collections.abc import Mapping, Sequence
from typing import Any

_ROLES = (("role", "content"), ("from", "value"))  # who speaks, and what
_ASSISTANTS = {"assistant", "gpt", "model", "bot"}
_TEXTS = {"text", "output_text"}  # kinds of parts of a content that are the answer


def is_chat(cell: Any) -> bool:
    """Return whether a cell is a list of messages."""
    return (
        isinstance(cell, list | tuple)
        and bool(cell)
        and all(
            isinstance(message, Mapping) and any({*names} <= message.keys() for names in _ROLES) for message in cell
        )
    )


def n_answers(chat: Sequence[Mapping[str, Any]]) -> int:
    """Return how many messages of a chat an assistant wrote."""
    return len(_answers(chat))


def without_chat(cell: Any) -> Any:
    """Return the only answer of a chat that has one, as a text or None; any other cell as it is."""
    if not is_chat(cell):
        return cell
    answers = _answers(cell)
    content = answers[0] if len(answers) == 1 else cell
    if isinstance(content, list | tuple) and content is not cell:
        parts = [part["text"] for part in content if isinstance(part, Mapping) and _is_text(part)]
        content = parts[0] if len(parts) == 1 else cell
    return content if content is None or isinstance(content, str) else cell


def _answers(chat: Sequence[Mapping[str, Any]]) -> list[Any]:
    """Return the contents of the messages of a chat that an assistant wrote."""
    return [
        message[what]
        for message in chat
        for who, what in _ROLES
        if what in message and str(message.get(who)).lower() in _ASSISTANTS
    ]


def _is_text(part: Mapping[str, Any]) -> bool:
    """Return whether a part of a content is text of the answer, not its thoughts or an image."""
    return part.get("type", "text") in _TEXTS and isinstance(part.get("text"), str)


def answers_of_batch(rows: Sequence[Mapping[str, Any]]) -> list[Any] | None:
    """Return the answer in each row of a batch, None where it failed; None if the rows are none of a batch.

    A row with several choices has a list of answers.
    """
    if not rows or not all("custom_id" in row and {"response", "result"} & row.keys() for row in rows):
        return None
    answers = [_answer(row.get("response") or row.get("result")) for row in rows]
    return None if any(isinstance(answer, Mapping) for answer in answers) else answers


def _answer(response: Any) -> Any:
    """Return the text of a response of a batch, a list of texts for several choices; None for one that failed.

    A response of another layout is returned as it is.
    """
    if response is None:
        return None
    if not isinstance(response, Mapping):
        return {}
    status = response.get("status_code", 200)
    if (status is not None and status != 200) or response.get("type", "succeeded") != "succeeded":
        return None
    body = response.get("body", response)
    if not isinstance(body, Mapping):
        return {}
    choices, output, message = (body.get(name) for name in ("choices", "output", "message"))
    if isinstance(choices, list) and choices:
        chats: list[list[Any]] = [[choice.get("message")] if isinstance(choice, Mapping) else [] for choice in choices]
    elif isinstance(output, list):
        chats = [[part for part in output if isinstance(part, Mapping) and part.get("type", "message") == "message"]]
    else:
        chats = [[message]]
    texts = [without_chat(chat) for chat in chats]
    if not all(text is None or isinstance(text, str) for text in texts):
        return response
    return texts[0] if len(texts) == 1 else texts
