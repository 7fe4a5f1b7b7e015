"""BERTScore's representation: the token states of each report, and the cells and codes that bound their cosines.

A token state is the hidden state of a transformer at one token. For cells and codes see `kernels.bertscore`.
"""

import hashlib
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial
from itertools import pairwise
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from metric_oracle.base.argument_checks import check_left_out
from metric_oracle.base.errors import BackendError, InputError, shown
from metric_oracle.corpora.reports import Reports
from metric_oracle.encoders.token_states import TokenEncoder, Tokens, encode, encode_once, states_digest, write_states
from metric_oracle.indexes import idf as idf_weights
from metric_oracle.indexes.contract import Corpus, Documents
from metric_oracle.indexes.lists import group_rows, offsets_of, places_of_lists, ranks_of
from metric_oracle.indexes.store import Columns, Stored, check_ids, check_offsets, map_file, read_arrays, release
from metric_oracle.indexes.tokens import TokenDocuments
from metric_oracle.kernels._build import distinct_lists, reorder
from metric_oracle.kernels.bertscore.bounds import LONGEST, WIDEST
from metric_oracle.kernels.bertscore.codec import BLOCK, CODE, SAMPLE, n_cells, screen
from metric_oracle.kernels.bertscore.query import TokenBatch, TokenCorpus
from metric_oracle.records import Metric
from metric_oracle.sources.contract import Attachment
from metric_oracle.sources.token_states import OpenedEncoder

LEAST_BLOCK = 1 << 8  # tokens per block when memory is scarce
BOUND_BYTES = CODE + 29  # bytes per token of its cell, radius, code, terms, place and id


@dataclass(frozen=True)
class TokenItem:
    """One report for the plain scorer."""

    states: np.ndarray  # float32[n, d], token states
    ids: np.ndarray  # int32[n], token ids
    # The fields below are None for a corpus: the tokens of a candidate have the weights of the reference's batch.
    weights: np.ndarray | None = None  # float64[n], weight of each token
    weight_of_id: np.ndarray | None = None  # float64[ids], weight of each token id
    baseline: tuple[float, float, float] | None = None  # (precision, recall, f1) that scores are relative to, if any


@dataclass(frozen=True)
class StateDocuments(TokenDocuments):
    """Token states of distinct token sequences, longest first."""

    states: np.ndarray  # float16 or float32[T, d]; scores are those of the stored numbers
    ids: np.ndarray  # int32[T], token ids in the encoder's vocabulary
    ptr: np.ndarray  # int64[D + 1], offsets of the tokens of each document
    row_ptr: np.ndarray  # int64[D + 1], offsets of the rows of each document
    row_id: np.ndarray  # int64[...], rows, ascending within a document
    # What follows is of a corpus.
    screens: dict[str, np.ndarray] | None = None  # see `TokenDocuments`
    description: Any = None  # dict of the encoder's signature, its special ids, the baseline, and counts
    frequency: Any = None  # int64[ids], number of corpus rows that have each token id, for idf "corpus"
    n_counted: int = 0  # number of rows over which `frequency` counts; 0 if they are those of this index
    # What follows is of queries.
    weights: Any = None  # float64[T], weight of each token
    weight_of_id: Any = None  # float64[ids], weight of each token id of the corpus and of these queries
    baseline: tuple[float, float, float] | None = None  # (precision, recall, f1) that scores are relative to, if any
    # the option idf, whether scores are rescaled, how many queries were cut off, and what made the states
    settings: dict[str, Any] = field(default_factory=dict)
    data_files: ClassVar[tuple[str, ...]] = ("states.arrow", "tokens.arrow")
    # The description names the folder of the encoder, so that equal data may have other descriptions.
    derived_files: ClassVar[tuple[str, ...]] = ("screen.arrow", "description.arrow")

    @classmethod
    def build(cls, kind: str, corpus: Corpus) -> "StateDocuments":
        """Encode the texts, or take the states of a prepared set that the reports attach, if they serve.

        The folder `Reports.scratch` keeps what an interrupted build has encoded. The expected size of the work, and how
        many texts are cut off, are told. Raise InputError if the memory that it may use is too small.
        """
        reports, texts, text_of_row, _ = corpus
        opened_encoder = reports.opened_encoder
        prepared = reports.attached.get(kind)
        if prepared is not None and (
            opened_encoder is None or prepared.values.serves(opened_encoder.encoder.signature, opened_encoder.storage)
        ):
            return cls._of_prepared(prepared, reports.texts, opened_encoder)
        assert opened_encoder is not None
        assert reports.scratch is not None
        encoder = opened_encoder.encoder
        tokens = encoder.tokenize(texts)
        distinct, document_of_text = _distinct_tokens(tokens)
        block = _block_tokens(len(distinct.ids), encoder.width, opened_encoder.max_memory)
        opened_encoder.tell(_plan(distinct, encoder, opened_encoder.storage, block))
        if tokens.n_truncated:
            opened_encoder.tell(
                f"{tokens.n_truncated:,} of {len(texts):,} distinct texts are longer than the {encoder.max_length} "
                f"tokens that {encoder.name} takes: their ends are cut off"
            )
        reports.scratch.mkdir(exist_ok=True)
        path = reports.scratch / "states.raw"
        write_states(
            encoder,
            distinct,
            path,
            storage=opened_encoder.storage,
            progress=lambda done: opened_encoder.progress("token states", done, len(distinct.ids)),
        )
        states = np.frombuffer(map_file(path), opened_encoder.storage).reshape(-1, encoder.width)
        description = {
            "encoder": encoder.signature,
            "special_ids": list(encoder.special_ids),
            "baseline": opened_encoder.baseline,
            "truncated": tokens.n_truncated,
        }
        return cls.from_states(states, distinct, document_of_text[text_of_row], description, block)

    @classmethod
    def from_states(
        cls,
        states: np.ndarray,
        tokens: Tokens,
        document_of_row: np.ndarray,
        description: dict[str, Any],
        block: int = BLOCK,
    ) -> "StateDocuments":
        """Index the states, float16 or float32[T, d], of distinct token sequences, longest first.

        `document_of_row` has the sequence of each row, -1 for none: int64[N]. `description` has all that the field of
        that name has but the dtype of the states and the counts of tokens and of rows with special tokens alone.
        `block` tokens are coded at a time. Raise InputError if the bounds are not proven for the size.
        """
        row_ptr, row_id = group_rows(document_of_row, len(tokens.ptr) - 1)
        document = np.repeat(np.arange(len(tokens.ptr) - 1), np.diff(tokens.ptr))
        n_ids = int(tokens.ids.max(initial=0)) + 1
        pair = np.unique(document * n_ids + tokens.ids)
        frequency = np.bincount(pair % n_ids, np.diff(row_ptr)[pair // n_ids], n_ids).astype(np.int64)
        is_special = np.isin(tokens.ids, description["special_ids"])
        words = np.add.reduceat(~is_special, tokens.ptr[:-1])
        description = {
            **description,
            "tokens": len(tokens.ids),
            "storage": states.dtype.name,
            "special_only": int(np.count_nonzero(words[document_of_row[document_of_row >= 0]] == 0)),
        }
        check_size(states.shape[1], int(np.diff(tokens.ptr).max(initial=0)))
        screens = screen(states, tokens.ptr, block, release=release)
        return cls(states, tokens.ids, tokens.ptr, row_ptr, row_id, screens, description, frequency)

    @classmethod
    def _of_prepared(
        cls, prepared: Attachment, texts: Sequence[str], opened_encoder: OpenedEncoder | None
    ) -> "StateDocuments":
        """Index the states that `prepared` attaches; the result is the same as if the encoder ran again.

        `texts` are those of all reports. Without an encoder, dtype and baseline are those of the prepared set.
        """
        stored: StateDocuments = prepared.values
        tokens, is_cut = stored.tokens_of(prepared)
        distinct, document_of_row = _distinct_tokens(tokens)
        storage = stored.states.dtype if opened_encoder is None else opened_encoder.storage
        description = {
            "encoder": stored.description["encoder"],
            "special_ids": stored.description["special_ids"],
            "baseline": stored.description["baseline"] if opened_encoder is None else opened_encoder.baseline,
            "truncated": len({texts[row] for row in np.flatnonzero(is_cut).tolist()}),
        }
        return cls.from_states(stored.states_of(distinct, storage), distinct, document_of_row, description)

    def serves(self, signature: Mapping[str, Any], storage: np.dtype) -> bool:
        """Return whether the stored states can be used in place of an encoder with this signature.

        They can if that encoder would make the same states, and if they are stored in the dtype `storage` or a wider
        one.
        """
        stored = self.description["encoder"]
        is_same = all(stored[name] == signature[name] for name in ("sha256", "layer", "compute"))
        return is_same and self.states.dtype.itemsize >= storage.itemsize

    def tokens_of(self, prepared: Attachment) -> tuple[Tokens, np.ndarray]:
        """Return the `Tokens` of the reports to which `prepared` attaches this index, and which were cut: bool[N]."""
        documents = prepared.of_row
        length = np.diff(self.ptr)[documents]
        is_cut = length == prepared.settings["cut_length"]
        ids = self.ids[places_of_lists(self.ptr, documents)]
        return Tokens(ids, offsets_of(length), int(np.count_nonzero(is_cut))), is_cut

    def states_of(self, tokens: Tokens, storage: np.dtype) -> np.ndarray:
        """Return the states of token sequences, all of them documents of this index, in the dtype `storage`."""
        document_of = {
            self.ids[begin:end].tobytes(): number for number, (begin, end) in enumerate(pairwise(self.ptr.tolist()))
        }
        bounds = pairwise(tokens.ptr.tolist())
        documents = np.array([document_of[tokens.ids[begin:end].tobytes()] for begin, end in bounds], np.int64)
        return self.states[places_of_lists(self.ptr, documents)].astype(storage)

    def counts(self) -> dict[str, Any]:
        """Return the description."""
        return self.description

    def item(self, document: int) -> TokenItem:
        """Return a document as a `TokenItem`; that of a query has weights and baseline."""
        tokens = slice(self.ptr[document], self.ptr[document + 1])
        weights = None if self.weights is None else self.weights[tokens]
        states = self.states[tokens].astype(np.float32)
        return TokenItem(states, self.ids[tokens], weights, self.weight_of_id, self.baseline)

    def key(self, document: int) -> bytes:
        """Return the token ids of a document as bytes."""
        return self.ids[self.ptr[document] : self.ptr[document + 1]].tobytes()

    @cached_property
    def _encoders(self) -> dict[str, TokenEncoder]:
        """Encoders that were opened for queries, by path, so that each is opened once."""
        return {}

    def weights_off(self, n_ids: int) -> np.ndarray:
        """Return the weight of each token id with idf "off", 0 for special tokens and otherwise 1: float64[n_ids]."""
        weight = np.ones(n_ids)
        weight[[i for i in self.description["special_ids"] if i < n_ids]] = 0.0
        return weight

    @cached_property
    def _corpus_off(self) -> TokenCorpus:
        """The arrays that the kernels read, with the weights of idf "off"."""
        return self.weighted(self.weights_off(len(self.frequency)))

    def arrays(self, metric: Metric, queries: Documents) -> TokenCorpus:
        """Return the arrays that the kernels read, with the token weights of the queries."""
        assert isinstance(queries, StateDocuments)
        return self._corpus_off if queries.settings.get("idf") == "off" else self.weighted(queries.weight_of_id)

    def encode(
        self,
        reports: Reports,
        *,
        idf: str | Path | np.ndarray = "off",
        rescale: bool | None = None,
        wordless: bool = False,
    ) -> "StateDocuments":
        """Encode the queries' texts with the corpus's encoder, or take the states that a prepared set has of them.

        `idf` says how tokens are weighted. "off": 1, and 0 for special tokens. "tests" or "corpus":
        log((N + 1) / (n + 1)), if n of the N queries or corpus rows have the token. Otherwise it is a table with the
        columns token_id and idf, or float64[ids], an array by token id; its weights are 0 or from 1e-30 to 1e30. With
        `rescale`, scores are relative to the encoder's baseline; by default they are if it has one. Queries without
        ordinary tokens are refused unless `wordless`: in a search, every candidate would score the same for them.

        Raise InputError for another `idf`, for `rescale` without a baseline, or if all words of a query weigh 0, and
        BackendError for another encoder than the corpus's.
        """
        tokens, make, made_by = self._tokenized(reports)
        baseline = self.description["baseline"]
        if baseline is None:
            step = "Leave it out, or build the index with `mo.reports(..., rescale_table=FILE)`."
            got = f"True for {self.description['encoder']['model']}"
            check_left_out({"rescale": rescale or None}, "where the encoder has no baseline", step, got=got)
        words = np.add.reduceat(~np.isin(tokens.ids, self.description["special_ids"]), tokens.ptr[:-1])
        if not wordless and not words.all():
            lacking = [reports.ids[i] for i in np.flatnonzero(words == 0).tolist()]
            raise InputError(
                "queries",
                "must have at least one ordinary token each for BERTScore",
                f"{len(lacking)} of {len(words)} without ({shown(*lacking[:3])})",
                "Remove these reports from the test file: every candidate would score the same.",
            )
        distinct, which = _distinct_tokens(tokens)
        weight = self._idf(idf, tokens, distinct)
        weights = weight[distinct.ids]
        totals = np.add.reduceat(weights, distinct.ptr[:-1])[which]
        if not totals[words > 0].all():
            lacking = [reports.ids[i] for i in np.flatnonzero((totals == 0) & (words > 0)).tolist()]
            raise InputError(
                "idf",
                "must give each query a token with a weight above 0",
                f"{len(lacking)} without ({shown(*lacking[:3])})",
                "Pass more queries, or `mo.SearchOptions(idf='corpus')`.",
            )
        states = make(distinct)
        # Another device or another version of a library makes other states. The digest does not depend on their order.
        digests = sorted(states_digest(states[begin:end]) for begin, end in pairwise(distinct.ptr.tolist()))
        is_rescaled = baseline is not None and rescale is not False
        settings = {
            "idf": idf_weights.name_of(idf),
            "rescaled": is_rescaled,
            "truncated_queries": tokens.n_truncated,
            "states_digest": hashlib.sha256("".join(digests).encode()).hexdigest(),
            **made_by,
        }
        return StateDocuments(
            states,
            distinct.ids,
            distinct.ptr,
            *group_rows(which, len(distinct.ptr) - 1),
            weights=weights,
            weight_of_id=weight,
            baseline=tuple(baseline) if is_rescaled else None,
            settings=settings,
        )

    def translate(self, metric: Metric, queries: Documents) -> TokenBatch:
        """Return the token states and weights of queries; `frequency` of a shard has the tokens of the whole set."""
        assert isinstance(queries, StateDocuments)
        return TokenBatch(queries.states, queries.ptr, queries.weights, queries.baseline)

    def _tokenized(self, reports: Reports) -> tuple[Tokens, Callable[[Tokens], np.ndarray], dict[str, Any]]:
        """Return the tokens of queries, a function that makes states of tokens, and what settings say of the encoder.

        They come from a prepared set if it serves, else from the encoder; states that `reports` keep are made once.
        """
        storage, prepared = self.states.dtype, reports.attached.get("bertscore")
        if prepared is not None and prepared.values.serves(self.description["encoder"], storage):
            stored: StateDocuments = prepared.values
            tokens, _ = stored.tokens_of(prepared)
            return tokens, partial(stored.states_of, storage=storage), {}
        encoder = self.open_encoder(reports)
        make = partial(encode, encoder, storage=storage)
        if reports.kept is not None:
            make = partial(encode_once, encoder, storage=storage, known_states=reports.kept)
        return encoder.tokenize(reports.texts), make, {"environment": encoder.environment}

    def _idf(self, idf: str | Path | np.ndarray, tokens: Tokens, distinct: Tokens) -> np.ndarray:
        """Return the weight of each token id, float64[ids], for an `idf` of `encode`.

        `tokens` are those of all queries, `distinct` those of the distinct ones. Raise InputError if it is neither a
        name nor a file, or its weights are not valid.
        """
        n_ids = max(len(self.frequency), int(distinct.ids.max(initial=0)) + 1)
        if isinstance(idf, np.ndarray):
            return idf_weights.checked(idf, n_ids)
        if idf == "off":
            return self.weights_off(n_ids)
        if str(idf) in ("tests", "corpus"):
            if str(idf) == "corpus":
                n, frequency = self.n_counted or len(self.row_id), np.zeros(n_ids, np.int64)
                frequency[: len(self.frequency)] = self.frequency
            else:
                n = len(tokens.ptr) - 1
                text = np.repeat(np.arange(n), np.diff(tokens.ptr))
                frequency = np.bincount(np.unique(text * n_ids + tokens.ids) % n_ids, minlength=n_ids)
            return np.log((n + 1) / (frequency + 1))
        assert not isinstance(idf, np.ndarray)
        if not Path(idf).is_file():
            raise InputError(
                "idf", "must be off, tests, corpus or a file", f"{shown(str(idf))}, which is none", "Check the name."
            )
        return idf_weights.read(Path(idf), n_ids)

    def open_encoder(self, reports: Reports) -> TokenEncoder:
        """Return the encoder of the corpus: that of `reports.opened_encoder`, if its signature is the same.

        Else the one at `reports.encoder` or, by default, where the index says; each is opened once. Raise BackendError
        if its files are not those of the corpus's encoder.
        """
        wanted = self.description["encoder"]
        if reports.opened_encoder is not None and reports.opened_encoder.encoder.signature == wanted:
            return reports.opened_encoder.encoder
        model = reports.encoder or wanted["model"]
        if str(model) in self._encoders:
            return self._encoders[str(model)]
        encoder = TokenEncoder(model, layer=wanted["layer"], dtype=wanted["compute"])
        if encoder.signature["sha256"] != wanted["sha256"]:
            raise BackendError(
                "encoder",
                f"must be the one of the index, {wanted['model']}, sha256 {wanted['sha256'][:12]}",
                f"{encoder.name}, sha256 {encoder.signature['sha256'][:12]}",
                "Pass `mo.reports(..., encoder=FOLDER)` with it, or build another index.",
            )
        return self._encoders.setdefault(str(model), encoder)

    def files(self) -> Iterator[tuple[str, Columns]]:
        """Yield files with the states, the tokens, the data of the bounds, and the description."""
        yield "states.arrow", {"states": self.states}
        # Scores also depend on the special ids and the baseline, so both belong to the data files.
        meaning = {"special_ids": np.array(self.description["special_ids"], np.int64)}
        meaning["baseline"] = np.array(self.description["baseline"] or (), np.float64)
        yield "tokens.arrow", {**{name: getattr(self, name) for name in _TOKEN_ARRAYS}, **meaning}
        assert self.screens is not None
        yield "screen.arrow", {name: self.screens[name] for name in _SCREEN_ARRAYS}
        yield "description.arrow", {"description": [json.dumps(self.description)]}

    @classmethod
    def load(cls, kind: str, stored: Mapping[str, Stored]) -> "StateDocuments":
        """Open states, tokens, description and the data of the bounds."""
        screens = read_arrays(stored["screen.arrow"])
        columns = read_arrays(stored["states.arrow"]) | read_arrays(stored["tokens.arrow"])
        del columns["special_ids"], columns["baseline"]  # the description has them too
        description = json.loads(read_arrays(stored["description.arrow"])["description"][0])
        check_size(columns["states"].shape[1], int(np.diff(columns["ptr"][:2]).max(initial=0)))
        check_offsets(columns["ptr"], columns["ids"])
        check_ids(columns["ids"], len(columns["frequency"]))
        check_ids(screens["cell"], len(screens["centers"]))
        if "order" in screens:
            check_ids(screens["order"], int(np.diff(columns["ptr"]).max(initial=0)))
        return cls(screens=screens, description=description, **columns)


_TOKEN_ARRAYS = ("ids", "ptr", "frequency", "row_ptr", "row_id")
_SCREEN_ARRAYS = (
    "centers", "basis", "direction", "cell", "radius", "codes", "terms", "order", "mean_along", "mean_off",
    "norm_error",
)  # fmt: skip


def _distinct_tokens(tokens: Tokens) -> tuple[Tokens, np.ndarray]:
    """Return the distinct token sequences, longest first, as `Tokens`, and which each text has: int64[n]."""
    which, first = distinct_lists(tokens.ptr, tokens.ids)
    order = np.argsort(-np.diff(tokens.ptr)[first], kind="stable")
    ptr, ids = reorder(tokens.ptr, tokens.ids, first[order])
    return Tokens(ids, ptr, tokens.n_truncated), ranks_of(order)[which]


def check_size(width: int, longest: int) -> None:
    """Raise InputError if states are wider, or the longest report longer, than the proof of the margins allows."""
    if width > WIDEST or longest > LONGEST:
        raise InputError(
            "token states",
            f"must have at most {WIDEST:,} components and a report at most {LONGEST:,} tokens",
            f"{width:,} and {longest:,}",
            "Take another layer or encoder, or cut reports with its max length.",
        )


def _memory(n_tokens: int, width: int, block: int) -> int:
    """Return the most bytes of memory that a build needs in addition to the model and mapped pages.

    It codes `block` tokens at a time, of states with `width` components.
    """
    return n_tokens * BOUND_BYTES + (SAMPLE * 3 + block * 16) * width * 4 + block * n_cells(n_tokens) * 4


def _block_tokens(n_tokens: int, width: int, max_memory: float | None) -> int:
    """Return the most tokens per block with which a build stays within `max_memory` GB, None for no limit.

    Raise InputError if no block is small enough.
    """
    block = BLOCK
    while max_memory is not None and block > LEAST_BLOCK and _memory(n_tokens, width, block) > max_memory * 1e9:
        block //= 2
    least = _memory(n_tokens, width, block) / 1e9
    if max_memory is not None and least > max_memory:
        raise InputError(
            "max_memory",
            f"must be at least {least + 0.005:.2f} GB for {n_tokens:,} tokens x {width}",
            max_memory,
            "Give more, or index fewer reports.",
        )
    return block


def _plan(tokens: Tokens, encoder: TokenEncoder, storage: np.dtype, block: int) -> str:
    """Return a line about the size of a build, for the user: distinct reports, tokens, disk, memory and device."""
    n_tokens = len(tokens.ids)
    states, bounds = n_tokens * encoder.width * storage.itemsize, n_tokens * BOUND_BYTES
    return (
        f"token states: {len(tokens.ptr) - 1:,} distinct reports, {n_tokens:,} tokens x {encoder.width} "
        f"{storage}; {(states + bounds) / 1e9:.2f} GB on disk ({(2 * states + bounds) / 1e9:.2f} GB while building), "
        f"{_memory(n_tokens, encoder.width, block) / 1e9:.2f} GB of memory in addition to the model, "
        f"encoded on {encoder.device}"
    )
