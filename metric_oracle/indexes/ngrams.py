"""Representation of BLEU and ROUGE-L: n-gram features of texts.

A feature is a pair of an n-gram and an occurrence: the first and the second "no" of a report are two features. The
number of clipped n-gram matches of two texts is then the size of a set intersection.
"""

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence, Sized
from dataclasses import dataclass, fields, replace
from functools import cached_property, partial
from itertools import count, repeat
from pathlib import Path
from string import ascii_lowercase, digits
from typing import ClassVar, NamedTuple

import numpy as np

from metric_oracle.corpora.reports import Reports
from metric_oracle.indexes.contract import Corpus, Documents, StoredDocuments
from metric_oracle.indexes.features import (
    FeatureDocuments,
    ForwardLists,
    Mapped,
    as_queries,
    buckets_of,
    check_features,
    invert,
    load_features,
    lookup,
    too_many_features,
    without_postings,
)
from metric_oracle.indexes.lists import distinct_in_order, offsets_of, places_of_lists, ranks_of
from metric_oracle.indexes.store import BATCH, Columns, Stored, Strings, check_ids, check_offsets, read_arrays, release
from metric_oracle.kernels._build import distinct_lists, number_grams, place_features, reorder
from metric_oracle.kernels._overlap import Features, SequenceBatch, SequenceCorpus
from metric_oracle.kernels._tokens import BLANK, FIRST, PART, split_tokens
from metric_oracle.kernels.contract import read_only
from metric_oracle.records import Metric

Span = tuple[int, int]

# A token in a text in lower case; `split_tokens` cuts the same tokens out of its bytes by `ROLES`.
_TOKEN = {
    "ngrams": re.compile(r"[^ ][^ .]*"),
    "coco": re.compile(r"\S[^\s.]*"),
    "words": re.compile(r"[a-z0-9]+"),
}


def tokenize_bleu(text: str) -> list[str]:
    """Return CXR-Report-Metric's tokens for BLEU: lower case, split at U+0020 and before each "."."""
    return _TOKEN["ngrams"].findall(text.lower())


def tokenize_coco(text: str) -> list[str]:
    """Return pycocoevalcap's tokens for BLEU and CIDEr: as `tokenize_bleu`, but split at any Unicode space."""
    return _TOKEN["coco"].findall(text.lower())


def tokenize_rouge(text: str) -> list[str]:
    """Return the tokens of rouge-score's default tokenizer without stemming: lower-case runs of a-z and 0-9."""
    return _TOKEN["words"].findall(text.lower())


def token_spans(text: str, kind: str) -> list[Span]:
    """Return where the tokens of ``TOKENIZERS[kind]`` are in a text, each from its first letter to after its last."""
    lowered, place = lowered_with_places(text)
    return [(place[a], place[b - 1] + 1) for a, b in (token.span() for token in _TOKEN[kind].finditer(lowered))]


def lowered_with_places(text: str) -> tuple[str, list[int]]:
    """Return a text in lower case, and the place in the text of each letter of it, because İ becomes two letters."""
    return text.lower(), [i for i, letter in enumerate(text) for _ in letter.lower()]


def n_wordless(texts: Iterable[str]) -> int:
    """Return how many texts have letters but no token of `tokenize_rouge`: those of other scripts."""
    return sum(not text.isspace() and any(map(str.isalpha, text)) and not tokenize_rouge(text) for text in texts)


TOKENIZERS = {"ngrams": tokenize_bleu, "coco": tokenize_coco, "words": tokenize_rouge}
MAX_ORDER = {"ngrams": 4, "coco": 4, "words": 1}


def _roles(kind: str) -> np.ndarray:
    """Return the role of each byte in tokens of ``TOKENIZERS[kind]``, see `split_tokens`: uint8[256]."""
    if kind == "words":
        return np.array([PART if chr(byte) in digits + ascii_lowercase else BLANK for byte in range(256)], np.uint8)
    roles = np.full(256, PART, np.uint8)
    roles[[byte for byte in range(128) if (chr(byte).isspace() if kind == "coco" else chr(byte) == " ")]] = BLANK
    roles[ord(".")] = FIRST
    return roles


ROLES = {kind: _roles(kind) for kind in TOKENIZERS}


@dataclass(frozen=True)
class NgramIndex(FeatureDocuments, StoredDocuments):
    """N-gram features of the distinct token sequences of a corpus, sorted by ascending length."""

    kind: str  # a key of `TOKENIZERS`; another name, such as "stems", if no query is tokenized for the index
    features: Features  # family n - 1 holds the n-grams of order n
    vocabulary: Sequence[str]  # words in code-point order; the id of a word is its position
    # int64[...], keys of the n-grams of order 2 and up, ascending within an order: id of the first n - 1 words *
    # vocabulary size + id of the last word. The id of an n-gram is its position within its order.
    gram_key: np.ndarray
    # int64[max_order + 1], offsets of each order in `gram_key`. Order 1 has no keys: the id of a word identifies it.
    gram_ptr: np.ndarray
    # int64[...], keys of second and later occurrences, ascending within an order: n-gram id << 32 | occurrence.
    repeat_key: np.ndarray
    repeat_ptr: np.ndarray  # int64[max_order + 1], offsets of each order in `repeat_key`
    family_ptr: np.ndarray  # int64[max_order + 1], first feature id of each order, and the number of features
    sequence: np.ndarray  # int32[...], word ids of the documents, in the order of the text
    sequence_ptr: np.ndarray  # int64[D + 1], offsets of each document in `sequence`
    items: Sequence[tuple[str, ...]] | None = None  # of queries: the tokens, see `FeatureDocuments`
    derived_files: ClassVar[tuple[str, ...]] = ("features.arrow",)

    @cached_property
    def words(self) -> list[str]:
        """The vocabulary as a list, made at its first use, because a large one would slow down opening the index."""
        return list(self.vocabulary)

    @cached_property
    def word_id(self) -> dict[str, int]:
        """The id of each word."""
        return {word: i for i, word in enumerate(self.words)}

    @cached_property
    def buckets(self) -> np.ndarray:
        """Length buckets of documents with equal numbers of tokens, int64[C, 8]; see `features.buckets_of`."""
        length = self.features.sizes[0]
        return buckets_of(length, length, length, length)

    def arrays(self, metric: Metric, queries: Documents) -> SequenceCorpus:
        """Return the arrays that the kernels read, for any metric and queries."""
        return SequenceCorpus(self.features, self.buckets, self.sequence, self.sequence_ptr, len(self.vocabulary))

    def item(self, document: int) -> tuple[str, ...]:
        """Return the tokens of a document."""
        if self.items is not None:
            return self.items[document]
        words = self.sequence[self.sequence_ptr[document] : self.sequence_ptr[document + 1]]
        return tuple(map(self.words.__getitem__, words.tolist()))

    def encode(self, reports: Reports) -> "NgramIndex":
        """Tokenize the queries. Their n-grams are indexed up to the order that a metric reads, see `up_to`."""
        which, items, tokens = distinct_sequences(reports.texts, self.kind)
        return replace(without_grams(self.kind, tokens, which), items=items)

    def own(self, rows: np.ndarray) -> "NgramIndex":
        """Return the documents of the rows, without tokenizing their texts."""
        documents, which = distinct_in_order(self.document_of_row[rows])
        return replace(
            self,
            features=self.features_of(documents, which),
            sequence=self.sequence[places_of_lists(self.sequence_ptr, documents)],
            sequence_ptr=offsets_of(np.diff(self.sequence_ptr)[documents]),
            items=Mapped(documents, self.item),
        )

    def translate(self, metric: Metric, queries: Documents) -> SequenceBatch:
        """Return the arrays of queries, with their n-grams up to the greatest order that the metric reads."""
        assert isinstance(queries, NgramIndex)
        asked = queries.up_to(_greatest_order(metric))
        ids, words = asked.features.fwd_id, asked.sequence.astype(np.int64)
        if asked.family_ptr is not self.family_ptr:  # else they are rows of this corpus, see `own`
            ids, words = self.ids_of(asked)[ids], self.ids_of_words(asked.words)[words]
        return SequenceBatch(as_queries(asked.features, ids), words, asked.sequence_ptr)

    def up_to(self, order: int) -> "NgramIndex":
        """Return the documents with n-grams of up to `order` words: themselves if they have them, else indexed once."""
        if order < len(self.family_ptr):
            return self
        if order not in self._of_order:
            tokens = TokenSequences(self.vocabulary, self.sequence, self.sequence_ptr)
            self._of_order[order] = index_queries(tokens, self.document_of_row, order)
        return self._of_order[order]

    @cached_property
    def _of_order(self) -> dict[int, "NgramIndex"]:
        """The documents that `up_to` has indexed, by their greatest order."""
        return {}

    def ids_of_words(self, words: Sequence[str]) -> np.ndarray:
        """Return the id in this index of each word, -1 if the index lacks it: int64[W]."""
        return np.fromiter(map(self.word_id.get, words, repeat(-1)), np.int64, len(words))

    def ids_of(self, other: "NgramIndex") -> np.ndarray:
        """Return the id in this index of each feature of another index, -1 if this index lacks it: int64[V].

        The other has no greater orders.
        """
        words = gram = self.ids_of_words(other.words)
        n_words = len(self.vocabulary)
        ids = []
        for order in range(len(other.family_ptr) - 1):
            if order:
                keys = self.gram_key[self.gram_ptr[order] : self.gram_ptr[order + 1]]
                of_other = other.gram_key[other.gram_ptr[order] : other.gram_ptr[order + 1]]
                gram = lookup(keys, renumbered(of_other, gram, words, n_words))
            first, n_grams = self.family_ptr[order], n_words if not order else len(keys)
            repeats = other.repeat_key[other.repeat_ptr[order] : other.repeat_ptr[order + 1]]
            of_gram = gram[repeats >> 32]
            keys = self.repeat_key[self.repeat_ptr[order] : self.repeat_ptr[order + 1]]
            repeat_id = lookup(keys, np.where(of_gram >= 0, of_gram << 32 | repeats & (1 << 32) - 1, -1))
            ids += [np.where(gram >= 0, gram + first, -1), np.where(repeat_id >= 0, repeat_id + first + n_grams, -1)]
        return np.concatenate(ids)

    @classmethod
    def build(cls, kind: str, corpus: Corpus) -> "NgramIndex":
        """Index the n-grams of the texts.

        If all readers are BLEU or ROUGE-L of this representation, there are no posting lists, and the orders up to the
        greatest of these metrics.
        """
        reports, texts, text_of_row, readers = corpus
        if readers is None or not all(m.representation == kind and m.kernel in ("bleu", "rouge_l") for m in readers):
            return build_ngrams(kind, texts, text_of_row, reports.scratch)
        return build_ngrams(kind, texts, text_of_row, max_order=max(map(_greatest_order, readers)), is_searched=False)

    def files(self) -> Iterator[tuple[str, Columns]]:
        """Yield all arrays as one file."""
        arrays = {f.name: getattr(self, f.name) for f in fields(self) if f.name not in ("kind", "features", "items")}
        yield "features.arrow", {**self.features._asdict(), **arrays}

    @classmethod
    def load(cls, kind: str, stored: Mapping[str, Stored]) -> "NgramIndex":
        """Open the arrays."""
        columns = read_arrays(stored["features.arrow"])
        opened = cls(kind=kind, features=load_features(columns), **columns)
        check_offsets(opened.sequence_ptr, opened.sequence)
        check_offsets(opened.gram_ptr, opened.gram_key)
        check_offsets(opened.repeat_ptr, opened.repeat_key)
        check_offsets(opened.family_ptr, range(len(opened.features.post_ptr) - 1))
        n_words = len(opened.vocabulary)
        check_ids(opened.sequence, n_words)
        if np.any(np.diff(opened.sequence_ptr) != opened.features.sizes[0]):
            msg = "sizes that differ from the lengths of the sequences"
            raise ValueError(msg)
        n_grams = n_words
        for order, n_features in enumerate(np.diff(opened.family_ptr).tolist()):
            grams = opened.gram_key[opened.gram_ptr[order] : opened.gram_ptr[order + 1]]
            repeats = opened.repeat_key[opened.repeat_ptr[order] : opened.repeat_ptr[order + 1]]
            check_ids(grams, n_grams * n_words)
            n_grams = n_features - len(repeats)
            check_ids(repeats, n_grams << 32)
        return opened


def _greatest_order(metric: Metric) -> int:
    """Return the greatest order of the n-grams that BLEU or ROUGE-L reads."""
    return int(str(metric.options.get("order", 1)))


def positions(ptr: np.ndarray, order: int) -> tuple[np.ndarray, np.ndarray]:
    """Return where each n-gram of `order` words begins, and the text that it is in, text after text: int64[...] each.

    `ptr` has the offsets of the texts. N-grams are not joined over the end of a text.
    """
    lengths = np.maximum(np.diff(ptr) - (order - 1), 0)
    text = np.repeat(np.arange(len(ptr) - 1), lengths)
    first = np.cumsum(lengths) - lengths
    return ptr[:-1][text] + np.arange(len(text)) - first[text], text


class TokenSequences(NamedTuple):
    """Texts as sequences of word numbers, and the words."""

    words: Sequence[str]  # in code-point order
    ids: np.ndarray  # int32[T], place of each token in `words`
    ptr: np.ndarray  # int64[n + 1], offsets of the sequences in `ids`

    def take(self, some: np.ndarray) -> "TokenSequences":
        """Return the given sequences, int64[n], in that order; `words` stay as they are."""
        ptr, ids = reorder(self.ptr, self.ids, some)
        return TokenSequences(self.words, ids, ptr)


def distinct_sequences(texts: Sequence[str], kind: str) -> tuple[np.ndarray, Mapped, TokenSequences]:
    """Tokenize texts as ``TOKENIZERS[kind]`` does, and number the distinct token sequences by first appearance.

    Return the number of each text's sequence, int64[n]; the distinct sequences as tuples of words; and the same as
    numbers of words.
    """
    distinct = list(dict.fromkeys(texts))
    number = dict(zip(distinct, count())).__getitem__
    of_text = np.fromiter(map(number, texts), np.int64, len(texts))
    tokens = number_tokens(distinct, kind)
    which, first = distinct_lists(tokens.ptr, tokens.ids)
    items = Mapped([distinct[i] for i in first.tolist()], partial(_tokens_of, kind))
    return which[of_text], items, tokens.take(first)


def _tokens_of(kind: str, text: str) -> tuple[str, ...]:
    """Return the tokens of a text, cut by plain Python: only the plain scorer reads them."""
    return tuple(TOKENIZERS[kind](text))


def renumbered(keys: np.ndarray, new_gram: np.ndarray, new_word: np.ndarray, n_words: int) -> np.ndarray:
    """Return keys of n-grams, see `NgramIndex.gram_key`, after their parts were numbered anew: int64[n].

    `new_gram` has the new number of the n-gram that all words but the last make, and `new_word` that of each word, of
    which there are `n_words`; -1 for one that has none, and then the key is -1.
    """
    before, last = np.divmod(keys, max(len(new_word), 1))
    gram, word = new_gram[before], new_word[last]
    return np.where((gram >= 0) & (word >= 0), gram * n_words + word, -1)


def number_tokens(texts: Sequence[str], kind: str) -> TokenSequences:
    """Tokenize texts as ``TOKENIZERS[kind]`` does, by compiled code, and number their words."""
    number: dict[str, int] = defaultdict(count().__next__)
    parts, lengths = [np.empty(0, np.int32)], [np.zeros(1, np.int64)]
    for first in range(0, len(texts), BATCH):
        batch = texts[first : first + BATCH]
        lowered = " ".join(batch).lower()
        if lowered.isascii():
            content = lowered.encode()
            text_ptr = _ends(batch) + np.arange(len(batch) + 1)  # each text but the last with the blank after it
            text_ptr[-1] = len(content)
        else:
            raw = [_in_lower_case(text, kind) for text in batch]
            content, text_ptr = b"".join(raw), _ends(raw)
        ids, ptr, begin, end = split_tokens(np.frombuffer(content, np.uint8), text_ptr, ROLES[kind])
        spans = zip(begin.tolist(), end.tolist(), strict=True)
        if lowered.isascii():
            words = [lowered[i:j] for i, j in spans]
        else:
            words = [content[i:j].decode(errors="surrogatepass") for i, j in spans]
        parts.append(np.fromiter(map(number.__getitem__, words), np.int32, len(words))[ids])
        lengths.append(np.diff(ptr))
        if len(texts) > BATCH:
            release()  # the texts are read once and in order, so their pages are not needed again
    words = sorted(number)
    rank = np.empty(len(words), np.int32)
    rank[np.fromiter(map(number.__getitem__, words), np.int64, len(words))] = np.arange(len(words))
    return TokenSequences(words, rank[np.concatenate(parts)], np.cumsum(np.concatenate(lengths)))


def _ends(sequences: Sequence[Sized]) -> np.ndarray:
    """Return the offset of each sequence in all of them joined, and their length: int64[n + 1]."""
    return offsets_of(np.fromiter(map(len, sequences), np.int64, len(sequences)))


def _in_lower_case(text: str, kind: str) -> bytes:
    """Return a text in lower case as UTF-8; for "coco", ASCII blanks replace its Unicode spaces, which end tokens."""
    lowered = text.lower()
    if kind == "coco" and not lowered.isascii():
        lowered = " ".join(lowered.split())
    return lowered.encode(errors="surrogatepass")


def ranked(keys: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the keys in ascending order, and the rank of each of `keys` among them: int32[n]."""
    order = np.argsort(keys)
    rank = np.empty(len(keys), np.int32)
    rank[order] = np.arange(len(keys), dtype=np.int32)
    return keys[order], rank


def build_ngrams(
    kind: str,
    texts: Sequence[str],
    text_of_row: np.ndarray,
    scratch: Path | None = None,
    *,
    max_order: int | None = None,
    is_searched: bool = True,
) -> NgramIndex:
    """Index the n-grams of distinct texts; `text_of_row` has the place of each corpus row's text: int64[N].

    `kind` is a key of `TOKENIZERS`, and says how long n-grams are unless `max_order` does. `scratch` and `is_searched`
    are as in `index_sequences`.
    """
    max_order = MAX_ORDER[kind] if max_order is None else max_order
    tokens = number_tokens(texts, kind)
    document_of_text, first = distinct_lists(tokens.ptr, tokens.ids)
    order = np.argsort(np.diff(tokens.ptr)[first], kind="stable")
    tokens = tokens.take(first[order])._replace(words=Strings(tokens.words))
    document_of_row = ranks_of(order)[document_of_text][text_of_row]
    return index_sequences(kind, tokens, document_of_row, max_order, scratch, is_searched=is_searched)


def index_sequences(
    kind: str,
    tokens: TokenSequences,
    document_of_row: np.ndarray,
    max_order: int,
    scratch: Path | None = None,
    *,
    is_searched: bool = True,
) -> NgramIndex:
    """Index the n-grams of up to `max_order` words in distinct token sequences.

    If the index is to be searched, the sequences must be sorted by ascending length. `document_of_row` has the sequence
    of each row, -1 for none: int64[N]. Without `is_searched` there are no posting lists. For `scratch` see
    `indexes.features.invert`.
    """
    words = tokens.words
    ptr, word_ids = read_only((tokens.ptr, tokens.ids))
    sizes = np.maximum(np.diff(ptr)[None, :] - np.arange(max_order)[:, None], 0).astype(np.int32)
    fwd_ptr = offsets_of(sizes.sum(axis=0, dtype=np.int64))
    fwd_id = np.empty(fwd_ptr[-1], np.int32)
    gram_keys, repeat_keys, family_ptr = [], [], [0]
    gram = word_ids.copy()
    for n in range(1, max_order + 1):
        if n == 1:
            keys, rank = np.empty(0, np.int64), np.arange(len(words), dtype=np.int32)
        else:
            keys, rank = ranked(number_grams(ptr, word_ids, gram, n, len(words), too_many_features(0)))
        gram_keys.append(keys)
        n_grams = family_ptr[-1] + len(rank)
        check_features(n_grams)
        place = fwd_ptr[:-1] + sizes[: n - 1].sum(axis=0)
        repeats = place_features(ptr, gram, rank, n, place, fwd_id, family_ptr[-1], too_many_features(n_grams))
        family_ptr.append(n_grams + int(repeats.sum()))
        check_features(family_ptr[-1])
        repeated = np.repeat(np.arange(len(rank)), repeats)
        repeat_keys.append(repeated << 32 | np.arange(len(repeated)) - (np.cumsum(repeats) - repeats)[repeated] + 1)
    del gram, keys, rank, place
    family, lists = np.array(family_ptr, np.int64), ForwardLists(fwd_ptr, fwd_id, sizes)
    if is_searched:
        features = invert(lists, sizes[0], document_of_row, int(family[-1]), scratch)
    else:
        features = without_postings(lists, document_of_row, int(family[-1]))
    return NgramIndex(
        kind,
        features,
        words,
        np.concatenate(gram_keys),
        _ends(gram_keys),
        np.concatenate(repeat_keys),
        _ends(repeat_keys),
        family,
        word_ids,
        ptr,
    )


def index_queries(tokens: TokenSequences, document_of_row: np.ndarray, max_order: int) -> NgramIndex:
    """Index the n-grams of queries without posting lists; see `index_sequences`."""
    return index_sequences("queries", tokens, document_of_row, max_order, is_searched=False)


def without_grams(kind: str, tokens: TokenSequences, document_of_row: np.ndarray) -> NgramIndex:
    """Return distinct token sequences without any n-gram, which are indexed when they are asked for: see `up_to`."""
    n, empty, zero = len(tokens.ptr) - 1, np.empty(0, np.int64), np.zeros(1, np.int64)
    lists = ForwardLists(np.zeros(n + 1, np.int64), empty, np.empty((0, n), np.int32))
    features = without_postings(lists, document_of_row, 0)
    return NgramIndex(kind, features, tokens.words, empty, zero, empty, zero, zero, tokens.ids, tokens.ptr)
