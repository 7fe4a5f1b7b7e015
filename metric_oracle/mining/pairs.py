"""Convert files of mined pairs to the shapes of training libraries: texts with labels, or relevance judgements."""

import json
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import pyarrow as pa
from annotated_doc import Doc

from metric_oracle.base import option_types
from metric_oracle.base.argument_checks import check_given
from metric_oracle.base.checksum import METADATA, replacing_signed
from metric_oracle.base.declarations import OUTPUT, Flag
from metric_oracle.base.errors import InputError
from metric_oracle.base.files import replacing
from metric_oracle.base.progress import Progress, counter
from metric_oracle.base.reprs import OneLine
from metric_oracle.base.validation import public
from metric_oracle.corpora.texts import folded
from metric_oracle.findings.notebook import InNotebook
from metric_oracle.findings.printed_tables import named
from metric_oracle.findings.writing import check_out
from metric_oracle.indexes.index import AnyIndex, Index
from metric_oracle.indexes.store import to_arrow, to_numpy
from metric_oracle.mining.mined_files import MinedFile
from metric_oracle.retrieval.corpus_index import corpus_of
from metric_oracle.verification.verify import recorded_metric

TREC = "trec"
_WITH_NEGATIVES = ("triplet", "labeled-list")  # shapes that mean nothing without negatives


@dataclass(frozen=True, repr=False)
class Paired(OneLine, InNotebook):
    """The file that `pairs` wrote, and its counts.

    Attributes
    ----------
    path : Path
        The file.
    counts : dict of str to int
        Rows of the file (``rows``), negatives left out because their text is that of their positive
        (``equal to the positive``) or of their anchor (``equal to the anchor``), and positives left out because fewer
        negatives are left than the shape needs (``too few negatives``).
    """

    path: Path
    counts: dict[str, int]

    def summary(self) -> str:
        """Return one line with the counts."""
        counts = self.counts
        return (
            f"{counts['rows']:,} rows; negatives left out: {counts['equal to the positive']:,} equal to the positive, "
            f"{counts['equal to the anchor']:,} to the anchor; positives left out: {counts['too few negatives']:,}"
        )

    def shown(self) -> list[Any]:
        """Return what a terminal shows: the counts."""
        return [named("Pairs", ["number"], {name: (f"{count:,}",) for name, count in self.counts.items()})]


@public
def pairs(
    positives: Annotated[
        str | Path,
        Doc("Pairs of reports that say the same: a file that [`mine`][metric_oracle.mine] wrote."),
    ],
    negatives: Annotated[
        str | Path | None,
        Doc(
            "Pairs of reports that differ in what they say: a file that [`mine`][metric_oracle.mine] wrote in the same "
            "index. Needed for the shapes triplet and labeled-list."
        ),
    ] = None,
    *,
    shape: Annotated[
        option_types.Shape,
        Doc(
            "What a row of the file has: {}. triplet: anchor, positive, negative. n-tuple: anchor, positive and "
            "several negatives, as many as their search listed. labeled-pair: anchor, candidate and label, 1 or 0. "
            "labeled-list: anchor, a list of candidates and a list of labels. trec: relevance judgements by ids; the "
            "gain of a positive is the number of the anchor's positives that score no better, that of a negative 0. "
            "trec writes .txt or .qrels, the others .parquet."
        ),
        Flag(panel=OUTPUT),
    ],
    out: Annotated[str | Path, Doc("File to write.")],
    index: Annotated[
        AnyIndex | None,
        Doc(
            "Index that [`mine`][metric_oracle.mine] searched: a folder that "
            "[`build_index`][metric_oracle.build_index] wrote; in Python also its reports. The texts of the pairs are "
            "read from it. Needed if they were written without texts, which is the default."
        ),
        Flag(metavar="INDEX"),
    ] = None,
    progress: Progress | None = None,
) -> Paired:
    """Write mined pairs in the shape that a training library reads: triplets, n-tuples, labelled pairs or lists.

    A negative whose text is that of its positive or of its anchor, after case, white space and Unicode form, is left
    out and counted. Anchors without a positive have no row.

    Returns
    -------
    Paired
        The number of rows and of what was left out.

    Raises
    ------
    InputError
        If an argument is wrong, a file is not one that `mine` wrote, or the files are of different indexes.

    Examples
    --------
    >>> import metric_oracle as mo, tempfile
    >>> folder = tempfile.mkdtemp()
    >>> reports = ["small effusion", "large effusion", "no acute process"]
    >>> index = mo.build_index(reports, f"{folder}/INDEX", metrics="rouge-l")
    >>> options = mo.SearchOptions(k=1, min_score=0.5)
    >>> positives = mo.mine(index, "rouge-l", f"{folder}/positives.parquet", options=options)
    >>> mo.pairs(positives.path, shape="n-tuple", out=f"{folder}/train.parquet", index=index).counts["rows"]
    2
    """
    path = Path(out)
    check_out(path, [positives, negatives], endings=(".txt", ".qrels") if shape == TREC else (".parquet",))
    if shape in _WITH_NEGATIVES:
        check_given("negatives", negatives, f"for the shape {shape}", "Mine them first.")
    sides = [MinedFile(Path(file), name) for file, name in ((positives, "positives"), (negatives, "negatives")) if file]
    mined = sides[0].signature
    searched = map(recorded_metric, [mined])
    corpus = None if index is None else corpus_of(index, searched, progress, exclude=mined.get("exclude", ()))
    fingerprints = [side.signature["index"] for side in sides] + ([] if corpus is None else [corpus.fingerprint])
    if len(set(fingerprints)) > 1:
        raise InputError(
            "positives, negatives and index must be of one index; they are of several.",
            "Mine both in one index, and pass this one.",
        )
    if not all(side.has_texts for side in sides):
        check_given("index", corpus, "for files without texts", "Name the index that was searched.")
    n_negatives = sides[1].signature["k"] if len(sides) > 1 else 0
    counts = {"rows": 0, "equal to the positive": 0, "equal to the anchor": 0, "too few negatives": 0}
    count = counter(progress, "", len(sides[0]))
    signature = {"kind": "pairs", "shape": shape, "mined": [side.signature for side in sides]}
    replaced = replacing_signed(path, signature) if shape == TREC else replacing(path)
    with replaced as temporary, ExitStack() as stack:
        file = stack.enter_context(temporary.open("wb"))
        writer: Any = None
        for of_block in _blocks(sides):
            block = _Block(*of_block, corpus)
            if shape == TREC:
                lines = block.judgements(counts)
                file.write("".join(f"{line}\n" for line in lines).encode())
                counts["rows"] += len(lines)
            else:
                table = block.shaped(shape, n_negatives, counts)
                if writer is None:
                    writer = stack.enter_context(_writer(file, table.schema, signature))
                writer.write_table(table)
                counts["rows"] += table.num_rows
            count(1)
    return Paired(path, counts)


def _writer(file: Any, schema: pa.Schema, signature: dict[str, Any]) -> Any:
    """Return a Parquet writer of tables of this schema to an open file, with `signature` in the file's metadata."""
    from pyarrow import parquet

    described = schema.with_metadata({METADATA: json.dumps(signature)})
    return parquet.ParquetWriter(file, described, write_page_checksum=True)


def _blocks(sides: list[MinedFile]) -> Iterator[tuple[pa.Table, pa.Table]]:
    """Yield the positives of each block of anchors, and the negatives of these anchors.

    `sides` has the file of positives and, unless there are no negatives, that of negatives. Without a block, one pair
    of empty tables is yielded.
    """
    for number in range(max(len(sides[0]), 1)):
        positives = sides[0].block(number) if len(sides[0]) else sides[0].of_anchors(0, -1)
        anchors = to_numpy(positives["anchor_row"])
        first, last = (int(anchors[0]), int(anchors[-1])) if len(anchors) else (0, -1)
        yield positives, sides[-1].of_anchors(first, last) if len(sides) > 1 else positives.slice(0, 0)


class _Block:
    """Positives and negatives of some anchors; both are sorted by the rows of their anchors."""

    def __init__(self, positives: pa.Table, negatives: pa.Table, corpus: Index | None) -> None:
        self._tables, self._corpus = (positives, negatives), corpus
        self._anchor, self._negative_anchor = (to_numpy(table["anchor_row"]) for table in self._tables)
        self._positive, self._negative = (to_numpy(table["candidate_row"]) for table in self._tables)

    @cached_property
    def _texts(self) -> tuple[np.ndarray, pa.Array]:
        """The rows of all reports of the block, ascending, and their texts."""
        columns = [(table, side) for table in self._tables for side in ("anchor", "candidate")]
        rows = np.concatenate([to_numpy(table[f"{side}_row"]) for table, side in columns])
        distinct, first = np.unique(rows, return_index=True)
        if self._corpus is not None:
            texts = self._corpus.take("text", distinct)
        else:
            chunks = [chunk for table, side in columns for chunk in table[f"{side}_text"].chunks]
            texts = pa.chunked_array(chunks, pa.large_string()).take(to_arrow(first))
        return distinct, texts.combine_chunks()

    def _text(self, rows: np.ndarray) -> pa.Array:
        """Return the texts of corpus rows."""
        distinct, texts = self._texts
        return texts.take(to_arrow(np.searchsorted(distinct, rows)))

    def _usable_pairs(self, counts: dict[str, int]) -> tuple[np.ndarray, np.ndarray]:
        """Return all pairs of a positive and a negative of the same anchor, as indices into both lists: int64[n] each.

        Negatives whose text equals that of the positive or of the anchor are left out and counted in `counts`.
        """
        begin = np.searchsorted(self._negative_anchor, self._anchor)
        size = np.searchsorted(self._negative_anchor, self._anchor, side="right") - begin
        positive = np.repeat(np.arange(len(self._anchor)), size)
        negative = np.arange(len(positive)) + np.repeat(begin - (np.cumsum(size) - size), size)
        of_anchor, of_positive, of_negative = (
            self._folded(rows) for rows in (self._anchor[positive], self._positive[positive], self._negative[negative])
        )
        is_positive, is_anchor = of_negative == of_positive, of_negative == of_anchor
        counts["equal to the positive"] += int(is_positive.sum())
        counts["equal to the anchor"] += int((is_anchor & ~is_positive).sum())
        is_usable = ~(is_positive | is_anchor)
        return positive[is_usable], negative[is_usable]

    @cached_property
    def _codes(self) -> np.ndarray:
        """Number of each report's text: texts that differ only in case, white space or Unicode form have one number."""
        _, texts = self._texts
        codes: dict[str, int] = {}
        return np.array([codes.setdefault(folded(text), len(codes)) for text in texts.to_pylist()], np.int64)

    def _folded(self, rows: np.ndarray) -> np.ndarray:
        """Return the numbers of the texts of corpus rows, see `_codes`: int64[n]."""
        return self._codes[np.searchsorted(self._texts[0], rows)]

    def _usable_negatives(self, counts: dict[str, int]) -> np.ndarray:
        """Return the indices of the negatives whose text is neither their anchor's nor that of one of its positives.

        The others are counted in `counts`.
        """
        _, negative = self._usable_pairs(dict.fromkeys(counts, 0))
        n_kept = np.bincount(negative, minlength=len(self._negative))
        begin, end = (np.searchsorted(self._anchor, self._negative_anchor, side) for side in ("left", "right"))
        is_anchor = self._folded(self._negative) == self._folded(self._negative_anchor)
        counts["equal to the anchor"] += int(((end > begin) & is_anchor).sum())
        counts["equal to the positive"] += int((~is_anchor & (n_kept < end - begin)).sum())
        return np.flatnonzero((end > begin) & (n_kept == end - begin))

    def shaped(self, shape: str, n_negatives: int, counts: dict[str, int]) -> pa.Table:
        """Return the table of the block for a shape with texts; what is left out is counted in `counts`.

        An n-tuple has `n_negatives` negatives; other shapes do not use this number.
        """
        if shape == "labeled-pair":
            negative = self._usable_negatives(counts)
            anchor = np.concatenate([self._anchor, self._negative_anchor[negative]])
            candidate = np.concatenate([self._positive, self._negative[negative]])
            label = np.repeat(np.array([1, 0]), [len(self._anchor), len(negative)])
            order = np.argsort(anchor, kind="stable")
            columns = [self._text(anchor[order]), self._text(candidate[order]), to_arrow(label[order])]
            return pa.table(columns, names=["anchor", "candidate", "label"])
        positive, negative = self._usable_pairs(counts)
        if shape == "triplet":
            sides = self._anchor[positive], self._positive[positive], self._negative[negative]
            return pa.table([self._text(rows) for rows in sides], names=["anchor", "positive", "negative"])
        size = np.bincount(positive, minlength=len(self._anchor))
        enough = size == n_negatives if shape == "n-tuple" else size > 0
        counts["too few negatives"] += int((~enough).sum())
        anchor = self._text(self._anchor[enough])
        of_enough = self._negative[negative[enough[positive]]]
        if shape == "n-tuple":
            places = of_enough.reshape(-1, n_negatives).T if n_negatives else []
            names = ["anchor", "positive", *(f"negative_{place}" for place in range(1, n_negatives + 1))]
            return pa.table(
                [anchor, self._text(self._positive[enough]), *(self._text(rows) for rows in places)], names=names
            )
        ends = np.concatenate([np.zeros(1, np.int64), np.cumsum(size[enough] + 1)])
        label = np.zeros(ends[-1], np.int64)
        label[ends[:-1]] = 1
        rows = np.empty(ends[-1], np.int64)
        rows[label == 1], rows[label == 0] = self._positive[enough], of_enough
        lists = [
            pa.ListArray.from_arrays(to_arrow(ends.astype(np.int32)), values)
            for values in (self._text(rows), to_arrow(label))
        ]
        return pa.table([anchor, *lists], names=["anchor", "candidates", "labels"])

    def judgements(self, counts: dict[str, int]) -> list[str]:
        """Return the lines of the block in TREC's format, ``query 0 doc gain``; negatives left out are counted.

        Raise InputError if an id has white space.
        """
        import pyarrow.compute as pc

        negative = self._usable_negatives(counts)
        order = np.argsort(np.concatenate([self._anchor, self._negative_anchor[negative]]), kind="stable")
        gain = np.concatenate([self._gains(), np.zeros(len(negative), np.int64)])[order]
        sides = self._tables[0], self._tables[1].take(to_arrow(negative))
        ids = pa.concat_tables(side.select(["anchor_id", "candidate_id"]) for side in sides).take(to_arrow(order))
        for column in ids.columns:
            wrong = column.filter(pc.match_substring_regex(column, r"\s"))
            if len(wrong):
                raise InputError(
                    "ids",
                    "must be without white space for the shape trec",
                    f"{len(wrong):,} others",
                    "Rename the reports.",
                )
        text = pa.large_string()
        gains = to_arrow(gain).cast(text)
        return pc.binary_join_element_wise(
            *(column.combine_chunks() for column in ids.columns[:1]),
            pa.scalar("0", text),
            ids.columns[1].combine_chunks(),
            gains,
            pa.scalar(" ", text),
        ).to_pylist()

    def _gains(self) -> np.ndarray:
        """Return, for each positive, its gain: how many positives of its anchor score no better, itself included."""
        score, place = to_numpy(self._tables[0]["score"]), np.arange(len(self._anchor))
        is_first = np.r_[True, self._anchor[1:] != self._anchor[:-1]]
        is_new = is_first | np.r_[True, score[1:] != score[:-1]]
        begin_of_tie = np.maximum.accumulate(np.where(is_new, place, 0))
        return np.searchsorted(self._anchor, self._anchor, side="right") - begin_of_tie
