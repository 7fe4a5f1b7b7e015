"""Read RadGraph JSON files, in any of the layouts in use, into arrays, without holding the whole parsed file in memory.

Layouts: an object keyed by report path (PhysioNet), by study id (CXR-Report-Metric's cache) or by position (the
`radgraph` package), a list of one-key objects (CheXpert Plus), and the two-annotator `test.json`.
"""

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from metric_oracle.base.errors import InputError, shown
from metric_oracle.corpora.tables import canonical_ids, check_unique, existing_file
from metric_oracle.corpora.text_files import read_text, text_pieces

_SCHEMAS = {
    "radgraph": re.compile(r"(?:ANAT|OBS)-(?:DP|U|DA)"),
    "radgraph-xl": re.compile(
        r"(?:Anatomy|Observation)::(?:measurement::)?(?:definitely present|definitely absent|uncertain)"
    ),
}
_skip_blanks = re.compile(r"[ \t\n\r]*").match
_TEXT = frozenset((str,))
AT_ONCE = 1 << 16  # entities whose numbers are held in lists, which are faster than arrays to append to
LONGEST = 1 << 28  # characters of one graph; in a broken file that seems to have more nothing is read on
# Below these shares of equal texts, a join by study id (by position) is one to other sections (other reports).
_MIN_STUDY_AGREEMENT = 0.5
_MIN_POSITION_AGREEMENT = 0.99


@dataclass(frozen=True)
class GraphTable:
    """Graphs in file order, and in each the mentions of entities and the relations in the order of the file.

    Those of graph `g` lie at `ptr[g]` to `ptr[g + 1] - 1` in the arrays below.
    """

    keys: list[str]  # study ids, or positions "0", "1", ... (a report that the package failed on is left out)
    keyed_by: str  # "study" or "position"
    schema: str  # "radgraph" (labels such as ANAT-DP) or "radgraph-xl" (such as Anatomy::definitely present)
    texts: list[str | None]  # the tokenised text of each graph, None where the file has none
    tokens: list[str]  # distinct strings of the mentions
    labels: list[str]  # distinct labels of the mentions
    relation_types: list[str]  # distinct types of the relations
    entity_ptr: npt.NDArray[np.int64]  # int64[n + 1]
    entity_token: npt.NDArray[np.int32]  # int32[m], index in `tokens`
    entity_label: npt.NDArray[np.int32]  # int32[m], index in `labels`
    relation_ptr: npt.NDArray[np.int64]  # int64[n + 1]
    relation_source: npt.NDArray[np.int32]  # int32[r], place among the mentions of the same graph, from 0
    relation_target: npt.NDArray[np.int32]  # int32[r], likewise
    relation_type: npt.NDArray[np.int32]  # int32[r], index in `relation_types`
    n_dangling: int  # relations whose target does not exist; they are left out
    path: str = "the graphs in memory"  # the file, for messages

    @cached_property
    def place_of(self) -> dict[str, int]:
        """Key -> position of its graph."""
        return {key: place for place, key in enumerate(self.keys)}

    def take(self, positions: npt.NDArray[np.int64]) -> "GraphTable":
        """Return the graphs at `positions`, in that order, with the strings that they use.

        `n_dangling` remains that of all graphs.
        """
        of_entity, entity_ptr = _within(self.entity_ptr, positions)
        of_relation, relation_ptr = _within(self.relation_ptr, positions)
        token, tokens = _used(self.entity_token[of_entity], self.tokens)
        label, labels = _used(self.entity_label[of_entity], self.labels)
        kind, kinds = _used(self.relation_type[of_relation], self.relation_types)
        return replace(
            self,
            keys=[self.keys[g] for g in positions.tolist()],
            texts=[self.texts[g] for g in positions.tolist()],
            tokens=tokens,
            labels=labels,
            relation_types=kinds,
            entity_ptr=entity_ptr,
            entity_token=token,
            entity_label=label,
            relation_ptr=relation_ptr,
            relation_source=self.relation_source[of_relation],
            relation_target=self.relation_target[of_relation],
            relation_type=kind,
        )


class _Numbers(dict[Any, int]):
    """String -> number; looking up a new string gives it the next number from 0. That of a known one stays in C."""

    def __missing__(self, key: Any) -> int:
        self[key] = number = len(self)
        return number


class _Column:
    """Numbers that are appended to the list `last`, whose items move to an array now and then."""

    def __init__(self) -> None:
        self.last: list[int] = []
        self._parts: list[npt.NDArray[np.int32]] = []

    def store(self) -> None:
        """Move the numbers to an array."""
        self._parts.append(np.array(self.last, np.int32))
        self.last.clear()

    def array(self) -> npt.NDArray[np.int32]:
        """Return all numbers, int32[n]."""
        self.store()
        return np.concatenate(self._parts)


class _Builder:
    """Graphs that are added one after another, and their table."""

    def __init__(self) -> None:
        self.keys: list[str] = []
        self.texts: list[str | None] = []
        self.tokens, self.labels, self.relation_types = _Numbers(), _Numbers(), _Numbers()
        self.n_dangling = 0
        self._same_text: dict[str | None, str | None] = {}
        self.n_entities, self.entity_token, self.entity_label = _Column(), _Column(), _Column()
        self.n_relations, self.relation_source = _Column(), _Column()
        self.relation_target, self.relation_type = _Column(), _Column()

    def add(self, key: str, graph: dict[str, Any], text: str | None) -> None:
        """Add a graph as parsed from JSON; another form raises KeyError, TypeError, ValueError or AttributeError."""
        entities = graph["entities"]
        if not _TEXT.issuperset(map(type, entities)):
            entities = with_text_keys(entities)
        place_of = dict(zip(entities, range(len(entities)), strict=False))
        # The loop sees every mention of a corpus, and local names are faster than attributes.
        tokens, labels, kinds = self.tokens, self.labels, self.relation_types
        token_of, label_of, types = self.entity_token.last, self.entity_label.last, self.relation_type.last
        sources, targets = self.relation_source.last, self.relation_target.last
        before = len(types)
        for source, entity in enumerate(entities.values()):
            token_of.append(tokens[entity["tokens"]])
            label_of.append(labels[entity["label"]])
            for kind, target_key in entity["relations"]:
                if target_key in place_of:
                    sources.append(source)
                    targets.append(place_of[target_key])
                    types.append(kinds[kind])
                else:
                    self.n_dangling += 1
        self.texts.append(self._same_text.setdefault(text, text))
        self.keys.append(key)
        self.n_entities.last.append(len(entities))
        self.n_relations.last.append(len(types) - before)
        if len(token_of) > AT_ONCE:
            self._store()

    def _store(self) -> None:
        """Move all numbers to arrays."""
        for column in (self.n_entities, self.entity_token, self.entity_label, self.n_relations):
            column.store()
        for column in (self.relation_source, self.relation_target, self.relation_type):
            column.store()

    def check(self, path: str | Path) -> None:
        """Raise InputError unless there is a graph, and all strings are text."""
        if not self.keys:
            raise InputError(f"{path} has no graph.", "Check the file.")
        for column, strings in (
            ("tokens", self.tokens),
            ("label", self.labels),
            ("relation type", self.relation_types),
            ("text", self._same_text),
        ):
            if not all(isinstance(string, str) or (string is None and column == "text") for string in strings):
                raise InputError(column, "must be text everywhere", f"another type in {path}", "Pass a RadGraph file.")

    def table(self, path: str | Path) -> GraphTable:
        """Return the table of all graphs; `path` is for messages."""
        self.check(path)
        keys, by_position = self.keys, _are_positions(self.keys)
        if not by_position:
            keys = canonical_ids(keys, f"the keys of {path}")
            check_unique(keys, f"the keys of {path}")
        return GraphTable(
            keys=keys,
            keyed_by="position" if by_position else "study",
            schema=_schema(self.labels, path),
            texts=self.texts,
            tokens=list(self.tokens),
            labels=list(self.labels),
            relation_types=list(self.relation_types),
            entity_ptr=_offsets(self.n_entities.array()),
            entity_token=self.entity_token.array(),
            entity_label=self.entity_label.array(),
            relation_ptr=_offsets(self.n_relations.array()),
            relation_source=self.relation_source.array(),
            relation_target=self.relation_target.array(),
            relation_type=self.relation_type.array(),
            n_dangling=self.n_dangling,
            path=str(path),
        )


def read_graphs(path: str | Path, *, annotator: str | None = None) -> GraphTable:
    """Read a RadGraph file, .json or .json.gz; if it has several graphs for each report, those of `annotator`."""
    path = existing_file(Path(path))
    try:
        return graph_table(_items(text_pieces(path), path), path, annotator)
    except UnicodeDecodeError:
        return graph_table(_items(iter([read_text(path)[0]]), path), path, annotator)


def graph_table(pairs: Iterable[tuple[str, Any]], path: str | Path, annotator: str | None = None) -> GraphTable:
    """Return the table of pairs (key, graph as parsed from JSON), see `read_graphs`; `path` is for messages."""
    built = _Builder()
    for key, graph in pairs:
        try:
            text = graph.get("text")
            if annotator is not None or "entities" not in graph:
                graph = _of_annotator(graph, annotator, key, path)
                text = graph.get("text", text)
            built.add(key, graph, text)
        except InputError:
            raise
        except (KeyError, TypeError, ValueError, AttributeError):
            raise InputError(
                "each graph",
                "must have entities with tokens, label and relations",
                f"another form for {shown(key)} in {path}",
                "Pass a RadGraph file.",
            ) from None
    return built.table(path)


def _offsets(sizes: npt.NDArray[np.int32]) -> npt.NDArray[np.int64]:
    """Return the sums of the first 0, 1, ..., n sizes, int64[n + 1]."""
    return np.concatenate([np.zeros(1, np.int64), np.cumsum(sizes, dtype=np.int64)])


def _within(
    ptr: npt.NDArray[np.int64], positions: npt.NDArray[np.int64]
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Return the positions of the mentions, or relations, of the chosen graphs, graph after graph: int64[m].

    `ptr` has the offsets of all graphs. Also return those of the chosen ones in this array: int64[n + 1].
    """
    sizes = np.diff(ptr)[positions]
    bounds = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)
    return np.repeat(ptr[positions] - bounds[:-1], sizes) + np.arange(bounds[-1]), bounds


def _used(numbers: npt.NDArray[np.int32], strings: list[str]) -> tuple[npt.NDArray[np.int32], list[str]]:
    """Return `numbers`, positions in `strings`, as positions in a list of the strings that they use, and this list."""
    used, place = np.unique(numbers, return_inverse=True)
    return place.reshape(-1).astype(np.int32), [strings[i] for i in used.tolist()]


def align_graphs(
    graphs: GraphTable, ids: Sequence[str], texts: Sequence[str], *, some: bool = False
) -> npt.NDArray[np.int64]:
    """Return, for each report, the index of its graph, -1 if it has none: int64[n].

    Graphs keyed by study id are joined on ids. Graphs keyed by position are joined by order if the texts agree, else by
    equal texts. Texts are compared without blanks, which is all that RadGraph's tokenisers add or remove. With `some`,
    the reports are only a part of those that were annotated: none of them need have a graph, and they are joined by
    text. Raise InputError if the graphs cannot be those of the reports.
    """
    if len(ids) != len(texts):
        raise InputError(
            "texts", "must be as many as ids", f"{len(texts)} texts and {len(ids)} ids", "Pass both of one corpus."
        )
    report_texts = [_without_blanks(text) for text in texts]

    if graphs.keyed_by == "study":
        joined = [graphs.place_of.get(study, -1) for study in canonical_ids(ids, "ids")]
        # Of graphs of a whole corpus a shard looks at its own.
        pairs = [(graphs.texts[place], text) for place, text in zip(joined, report_texts, strict=True) if place >= 0]
        equal = [_without_blanks(graph_text) == text for graph_text, text in pairs if graph_text is not None]
        if max(joined, default=-1) < 0 and not some:
            raise InputError(
                "ids of the reports",
                f"must occur among the study ids of {graphs.path}",
                f"none of {len(ids)} reports",
                "Pass the graphs of this corpus.",
            )
        if sum(equal) < _MIN_STUDY_AGREEMENT * len(equal):
            raise InputError(
                "graphs",
                "must describe the reports' own text",
                f"{sum(equal)} equal texts among {len(equal)} joined by study id in {graphs.path}",
                "They describe other sections of these studies: pass graphs made from the same section.",
            )
        return np.array(joined, np.int64)

    graph_texts = [text if text is None else _without_blanks(text) for text in graphs.texts]
    if len(graph_texts) == len(report_texts) and not some:
        equal = [graph == report for graph, report in zip(graph_texts, report_texts, strict=True)]
        if sum(equal) >= _MIN_POSITION_AGREEMENT * len(equal):
            return np.arange(len(report_texts), dtype=np.int64)
    first_of: dict[str | None, int] = {}
    for place, text in enumerate(graph_texts):
        first_of.setdefault(text, place)
    joined = [first_of.get(text, -1) for text in report_texts]
    if max(joined, default=-1) < 0 and not some:
        raise InputError(
            "graphs keyed by position",
            "must carry the reports' texts",
            f"no equal text among {len(graph_texts)} graphs of {graphs.path} and {len(report_texts)} reports",
            "Pass graphs made from the same section.",
        )
    return np.array(joined, np.int64)


class _Text:
    """JSON text that comes in pieces, of which one at a time is held in memory."""

    def __init__(self, pieces: Iterator[str]) -> None:
        self._pieces, self._decode = pieces, json.JSONDecoder().raw_decode
        self._text, self._place = "", 0

    def _read_on(self) -> bool:
        """Append the next piece to what is not yet read; return False at the end."""
        for piece in self._pieces:
            if piece:
                self._text, self._place = self._text[self._place :] + piece, 0
                return True
        return False

    def next(self) -> str:
        """Return the next character that is not blank, without moving on; "" at the end."""
        while True:
            self._place = _skip_blanks(self._text, self._place).end()  # type: ignore[union-attr]
            if self._place < len(self._text):
                return self._text[self._place]
            if not self._read_on():
                return ""

    def sign(self) -> str:
        """Return the next character that is not blank, and move behind it; "" at the end."""
        sign = self.next()
        self._place += 1
        return sign

    def value(self) -> Any:
        """Parse and return the next JSON value, and move behind it; raise ValueError if there is none."""
        self.next()
        while True:
            try:
                value, end = self._decode(self._text, self._place)
            except ValueError:
                # It may go on in the next piece.
                if len(self._text) - self._place > LONGEST or not self._read_on():
                    raise
                continue
            if end < len(self._text) or not self._read_on():
                self._place = end
                return value


def _items(pieces: Iterator[str], path: str | Path) -> Iterator[tuple[str, Any]]:
    """Yield key and graph of the items of a JSON object, or of a list of one-key objects, whose keys are positions.

    `pieces` are those of the JSON text, one after another; one item at a time is parsed. Another form raises InputError
    with `path`.
    """
    text, number = _Text(pieces), 0
    try:
        opening = text.sign()
        closing = {"{": "}", "[": "]"}[opening]
        sign = "," if text.next() != closing else text.sign()
        while sign == ",":
            item = text.value()
            if opening == "{":
                if not isinstance(item, str) or text.sign() != ":":
                    raise ValueError
                key = item
                item = text.value()
            else:
                # One-key objects all carry the key "0"; the place in the list is what they mean.
                key = str(number)
                (item,) = item.values()
            yield key, item
            number += 1
            sign = text.sign()
            if sign not in (",", closing):
                raise ValueError
        if number and text.sign():
            raise ValueError
    except (InputError, UnicodeDecodeError):  # of the file, whatever it holds
        raise
    except (ValueError, LookupError, AttributeError, RecursionError):
        raise InputError(
            f"{path} is not a whole JSON object of graphs or list of one-key objects: it breaks after {number} graphs.",
            "Fetch or make it again.",
        ) from None


def with_text_keys(values: Mapping[Any, Any]) -> Mapping[str, Any]:
    """Return a mapping with its keys as strings, as JSON has them and as relations name their targets."""
    return values if _TEXT.issuperset(map(type, values)) else json.loads(json.dumps(values))


def _of_annotator(graph: dict[str, Any], annotator: str | None, key: str, path: str | Path) -> dict[str, Any]:
    """Return the graph of one annotator from those of a report; raise InputError if it is not among them.

    Raise KeyError if no annotator is named (None) and there is none. `key` and `path` are for messages.
    """
    names = [name for name, value in graph.items() if isinstance(value, dict) and "entities" in value]
    if annotator in names:
        return graph[annotator]
    if not names and annotator is None:
        raise KeyError
    listed = shown(*names) or "no annotator level"
    raise InputError(
        "annotator",
        "must be one of those in the file",
        f"{shown(annotator)} where {shown(key)} in {path} has {listed}",
        "Pass one of these, or leave annotator out if the graphs of a report are not listed by annotator.",
    )


def _are_positions(keys: list[str]) -> bool:
    """Return whether the keys, at least one, are ascending numbers, of which the first is "0".

    Study ids may look the same; the join compares texts to decide.
    """
    joined = "".join(keys)
    is_of_digits = joined.isascii() and joined.isdecimal() and 1 <= min(map(len, keys)) <= max(map(len, keys)) <= 18
    if keys[0] != "0" or not is_of_digits:
        return False
    return bool(np.all(np.diff(np.fromiter(map(int, keys), np.int64, len(keys))) > 0))


def _schema(labels: _Numbers, path: str | Path) -> str:
    """Return "radgraph" (also without labels) or "radgraph-xl", by the labels; raise InputError for any others."""
    schemas = set()
    for label in labels:
        schema = next((name for name, pattern in _SCHEMAS.items() if pattern.fullmatch(label)), None)
        if schema is None:
            raise InputError(
                f"{path} has labels of entities that are neither RadGraph's nor RadGraph-XL's.", "Pass a RadGraph file."
            )
        schemas.add(schema)
    if len(schemas) > 1:
        raise InputError(
            "labels of entities",
            "must be of one schema",
            f"{' and '.join(sorted(schemas))} in {path}",
            "Split the file.",
        )
    return next(iter(schemas), "radgraph")


def _without_blanks(text: str) -> str:
    """Return a text without white space."""
    return "".join(text.split())
