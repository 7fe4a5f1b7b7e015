"""RadGraph by its published model archives: reports -> entities and relations, in plain PyTorch and in batches.

What the annotations are, the `radgraph` package 0.1.18 defines. It runs on transformers 4 only and reads one report at
a time; this module gives the same annotations beside transformers 4 and 5, and never imports it. An archive holds
`config.json`, `weights.th` and `vocabulary/`. Configuration and tokenizer of its transformer are files of their own.
"""

import hashlib
import io
import json
import math
import pickle
import re
import tarfile
import warnings
import zlib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, pairwise
from pathlib import Path
from typing import IO, Any

import numpy as np

from metric_oracle.corpora.tables import shown_names
from metric_oracle.encoders.libraries import choose_device, import_libraries
from metric_oracle.errors import InputError

MODEL_TYPES = ("radgraph", "radgraph-xl", "modern-radgraph-xl", "echograph")

# What the package reads in place of an empty report.
_EMPTY = ["None"]
_V1_MARK = re.compile(r"([/,:.!?()])")
_XL_WORD = re.compile(r"\w+|[^\w\s]+")
# Escapes that were left in the reports: \n, \f, the trade mark and \" as they are typed.
_XL_ESCAPES = (("\\n", " "), ("\\f", " "), ("\\u2122", " "), ('\\"', "``"))
_XL_PARTED = ((").", ") ."), ("%.", "% ."), (".'", ". '"), ("%,", "% ,"), ("%)", "% )"))
# Words that the model reads in another form than the annotation shows.
_READ_AS = {"/.": ".", "/?": "?"}

_ENCODER = "_embedder.token_embedder_bert._matched_embedder.transformer_model."
_WIDTHS = "_endpoint_span_extractor._span_width_embedding.weight"
# Coreference and events take no part in RadGraph; old versions of transformers saved the positions.
_UNUSED = ("_coref.", "_events.", f"{_ENCODER}embeddings.position_ids")
# Bytes of a file read into memory; the published weights have about 0.5 GB.
_MOST_BYTES = {"weights.th": 1 << 33}
_MOST_BYTES_ELSE = 1 << 20
# Word pieces with padding: what a core computes fastest, enough to fill a GPU.
_PIECES_PER_BATCH = {"cpu": 1_024, "cuda": 32_768}
_PAIRS_PER_BATCH = 8_192


@dataclass(frozen=True)
class _Settings:
    """What `config.json` says."""

    encoder: str
    window: int
    max_width: int
    n_widths: int
    n_features: int
    hidden: list[int]
    spans_per_word: float


@dataclass(frozen=True)
class _Spans:
    """Every span of at most `max_width` words of the reports of a batch, by start, then end.

    Attributes
    ----------
    start, end, width, report : int64[spans]
        First and last word, counted through the batch; how many words the last lies after the first; number of the
        report.
    word_ptr, span_ptr : int64[reports + 1]
    """

    start: np.ndarray
    end: np.ndarray
    width: np.ndarray
    report: np.ndarray
    word_ptr: np.ndarray
    span_ptr: np.ndarray

    @classmethod
    def of(cls, n_words: Sequence[int], max_width: int) -> "_Spans":
        """Enumerate the spans of reports of so many words."""
        n_of_word = np.concatenate([np.minimum(np.arange(n, 0, -1), max_width) for n in n_words])
        ptr_of_word = np.concatenate([[0], np.cumsum(n_of_word)])
        start = np.repeat(np.arange(len(n_of_word)), n_of_word)
        width = np.arange(len(start)) - ptr_of_word[start]
        word_ptr = np.concatenate([[0], np.cumsum(n_words)])
        span_ptr = ptr_of_word[word_ptr]
        return cls(
            start, start + width, width, np.repeat(np.arange(len(n_words)), np.diff(span_ptr)), word_ptr, span_ptr
        )


class RadGraph:
    """RadGraph, ready to annotate.

    Parameters
    ----------
    archive : path
        `radgraph.tar.gz`, `radgraph-xl.tar.gz`, `modern-radgraph-xl.tar.gz` or `echograph.tar.gz` as published, or the
        folder that one was extracted to. The names of its vocabulary files tell the model type.
    encoder : path
        Folder with `config.json` and tokenizer of the transformer that the archive names (its weights are in the
        archive); by default the local folder of that name, else its entry in the local Hugging Face cache. Nothing is
        downloaded. A tokenizer of the same size but other word pieces cannot be told from the right one.
    device : {"auto", "cpu", "cuda"}
        "auto" takes the GPU if there is one.
    function : str
        Name for error messages.
    """

    def __init__(
        self,
        archive: str | Path,
        *,
        encoder: str | Path | None = None,
        device: str = "auto",
        function: str = "build_index",
    ) -> None:
        torch, transformers = import_libraries(function, "RadGraph")
        self._function = function
        self._path = Path(archive)
        self._device = choose_device(device, function)
        files, sha256 = _read_files(self._path, function)
        self._type, self._labels, self._relation_types = _read_vocabulary(files, self._path, function)
        self._settings = _read_settings(files["config.json"], self._path, function)
        folder = _find_encoder(encoder, self._settings.encoder, function)
        model, self._tokenizer, self._ends = _build_encoder(folder, function)
        tensors = _read_tensors(files.pop("weights.th"), self._path, function)
        self._dim = model.config.hidden_size
        expected = {_ENCODER + name: tuple(value.shape) for name, value in model.state_dict().items()}
        expected[_WIDTHS] = (self._settings.n_widths, self._settings.n_features)
        layers = self._head_layers()
        for name, (n_in, n_out) in chain.from_iterable(layers.values()):
            expected |= {f"{name}.weight": (n_out, n_in), f"{name}.bias": (n_out,)}
        _check_tensors(tensors, expected, self._path, self._settings.encoder, function)
        model.load_state_dict({name: tensors[_ENCODER + name] for name in model.state_dict()})
        self._encoder = model.eval().to(self._device)
        self._width_table = tensors[_WIDTHS].float().to(self._device)
        self._heads = {
            head: [
                tuple(tensors[f"{name}.{part}"].float().to(self._device) for part in ("weight", "bias"))
                for name, _ in named
            ]
            for head, named in layers.items()
        }
        # transformers 4 added no special tokens here, so the published weights were trained on windows without them,
        # and on words that read one piece too far, since a start token was counted all the same.
        self._is_legacy = model.config.model_type == "modernbert"
        self._signature = {
            "model": self._type,
            "archive": self._path.name,
            "sha256": sha256,
            "special_tokens": "legacy" if self._is_legacy else "added",
            "torch": str(torch.__version__),
            "transformers": transformers.__version__,
        }

    @property
    def signature(self) -> dict[str, str]:
        """What reproduces the annotations: model, archive, its sha256 (a folder's: of weights.th) and versions."""
        return dict(self._signature)

    def annotate(
        self, texts: Sequence[str], *, progress: Callable[[int], None] | None = None
    ) -> dict[str, dict[str, Any]]:
        """Annotate reports as the package does, each distinct sequence of words once.

        Parameters
        ----------
        texts : sequence of str
            As in the package, an empty one is read as the report "None". So is one without a word (blanks only), which
            stops the package.
        progress : function
            Called with the number of texts finished since the last call.

        Returns
        -------
        dict
            Position as text ("0", "1", ...) -> text, entities, data_source and data_split. Texts of the same words
            share one object.
        """
        self._check_texts(texts)
        parted = {text: " ".join(split_words(text, self._type)) for text in dict.fromkeys(texts)}
        n_rows = Counter(parted[text] for text in texts)
        pieces = self._split_pieces(set(chain.from_iterable(text.split() for text in n_rows)))
        graphs: dict[str, dict[str, Any]] = {}
        for batch in self._batches(n_rows, pieces):
            for text, entities in zip(batch, self._run([text.split() for text in batch], pieces), strict=True):
                graphs[text] = {"text": text, "entities": entities, "data_source": None, "data_split": "inference"}
            if progress is not None:
                progress(sum(n_rows[text] for text in batch))
        return {str(row): graphs[parted[text]] for row, text in enumerate(texts)}

    def _head_layers(self) -> dict[str, list[tuple[str, tuple[int, int]]]]:
        """Return for each head its layers in order, as name and sizes."""
        hidden = self._settings.hidden
        span = 2 * self._dim + self._settings.n_features
        ner = f"_ner._ner_scorers.{self._type}__ner_labels"
        kind = f"{self._type}__relation_labels"
        pruner = f"_relation._mention_pruners.{kind}._scorer"
        heads = {
            "ner": (f"{ner}.0._module", f"{ner}.1._module", span, len(self._labels) - 1),
            "mention": (f"{pruner}.0._module", f"{pruner}.1._module", span, 1),
            "relation": (
                f"_relation._relation_feedforwards.{kind}",
                f"_relation._relation_scorers.{kind}",
                3 * span,
                len(self._relation_types),
            ),
        }
        return {
            head: list(
                zip(
                    [*(f"{inner}._linear_layers.{number}" for number in range(len(hidden))), last],
                    pairwise([n_in, *hidden, n_out]),
                    strict=True,
                )
            )
            for head, (inner, last, n_in, n_out) in heads.items()
        }

    def _check_texts(self, texts: Sequence[str]) -> None:
        if isinstance(texts, str):
            msg = f"{self._function}: texts must be a list of texts; got one text. Put it into a list."
            raise InputError(msg)
        for row, text in enumerate(texts):
            if not isinstance(text, str):
                msg = (
                    f"{self._function}: texts must all be str; got {type(text).__name__} at position {row}. "
                    "Drop the missing ones."
                )
                raise InputError(msg)
            try:
                text.encode()
            except UnicodeEncodeError:
                msg = f"{self._function}: texts must be Unicode; got half a character at position {row}. Repair it."
                raise InputError(msg) from None

    def _split_pieces(self, words: Iterable[str]) -> dict[str, list[int]]:
        """Return the ids of the word pieces of each word; some, such as invisible characters, have none."""
        listed = sorted(words)
        read = [_READ_AS.get(word, word) for word in listed]
        # Without `verbose=False` a very long word is logged as too long for the transformer.
        ids = self._tokenizer(read, add_special_tokens=False, verbose=False)["input_ids"] if read else []
        return dict(zip(listed, ids, strict=True))

    def _batches(self, texts: Iterable[str], pieces: Mapping[str, list[int]]) -> Iterator[list[str]]:
        """Yield texts of similar length."""
        n_pieces = {text: sum(len(pieces[word]) for word in text.split()) for text in texts}
        batch: list[str] = []
        n_windows = longest = 0
        # Longest first, ties by content: batches depend on the set of texts, not on its order.
        for text in sorted(n_pieces, key=lambda text: (-n_pieces[text], text)):
            n_own = math.ceil(n_pieces[text] / (self._settings.window - 2)) or 1
            if batch and (n_windows + n_own) * longest > _PIECES_PER_BATCH[self._device]:
                yield batch
                batch, n_windows = [], 0
            if not batch:
                longest = min(n_pieces[text] + 2, self._settings.window)
            batch.append(text)
            n_windows += n_own
        if batch:
            yield batch

    def _run(self, reports: list[list[str]], pieces: Mapping[str, list[int]]) -> list[dict[str, Any]]:
        """Return the entities of each report of a batch, given as words."""
        import torch

        spans = _Spans.of([len(words) for words in reports], self._settings.max_width)
        with torch.inference_mode():
            states = self._word_states([[pieces[word] for word in words] for words in reports])
            label = self._best(self._score_spans("ner", states, spans))
            mention = self._finite(self._score_spans("mention", states, spans))[:, 0]
            # The package scores all pairs of kept spans and drops those where a span is no entity afterwards.
            related = np.flatnonzero((label > 0) & self._is_kept(mention.cpu(), spans))
            relations = self._relate(states, spans, mention, related)
        graphs: list[dict[str, Any]] = [{} for _ in reports]
        entities: dict[int, tuple[str, dict[str, Any]]] = {}
        for span in np.flatnonzero(label).tolist():
            number = int(spans.report[span])
            words, first = reports[number], int(spans.word_ptr[number])
            i, j = int(spans.start[span]) - first, int(spans.end[span]) - first
            key = str(len(graphs[number]) + 1)
            graphs[number][key] = {
                "tokens": " ".join(words[i : j + 1]),
                "label": self._labels[label[span]],
                "start_ix": i,
                "end_ix": j,
                "relations": [],
            }
            entities[span] = key, graphs[number][key]
        for source, target, kind in relations:
            entities[source][1]["relations"].append([self._relation_types[kind], entities[target][0]])
        return graphs

    def _word_states(self, reports: list[list[list[int]]]) -> Any:
        """Return for each word of the reports the mean of its word pieces' states: float32[words, d], zero for none."""
        import torch

        window = self._settings.window
        windows: list[list[int]] = []
        bags, offsets, n_bagged = [], [], 0
        for pieces in reports:
            ids = self._with_ends(list(chain.from_iterable(pieces)))
            # The state of a piece lies one place further, after that of the start token.
            place = _unfolded(len(ids), window)[1 : sum(map(len, pieces)) + 1]
            bags.append(len(windows) * window + place)
            ptr = np.cumsum([0, *map(len, pieces[:-1])])
            offsets.append(n_bagged + np.minimum(ptr, len(place)))
            n_bagged += len(place)
            windows += [ids[first : first + window] for first in range(0, len(ids), window)]
        states, longest = self._encode(windows)
        row, column = np.divmod(np.concatenate(bags), window)
        return torch.nn.functional.embedding_bag(
            torch.from_numpy(row * longest + column).to(self._device),
            states,
            torch.from_numpy(np.concatenate(offsets)).to(self._device),
            mode="mean",
        )

    def _with_ends(self, pieces: list[int]) -> list[int]:
        """Return the windows of a report one after the other, each with its special tokens."""
        if self._is_legacy:
            return pieces
        start, end = self._ends
        n_inner = self._settings.window - 2
        folded = (pieces[first : first + n_inner] for first in range(0, len(pieces), n_inner))
        return [piece for inner in folded for piece in (start, *inner, end)]

    def _encode(self, windows: list[list[int]]) -> tuple[Any, int]:
        """Return the last hidden states of the padded windows, float32[windows * longest, d], and the longest size."""
        import torch

        # At least one row, so that words without a piece find a matrix of the right width.
        longest = max(map(len, windows), default=1)
        if not windows:
            return torch.zeros(1, self._dim, device=self._device), longest
        ids = np.zeros((len(windows), longest), np.int64)
        mask = np.zeros(ids.shape, np.int64)
        for row, window in enumerate(windows):
            ids[row, : len(window)] = window
            mask[row, : len(window)] = 1
        step = max(1, _PIECES_PER_BATCH[self._device] // longest)
        states = [
            self._encoder(
                input_ids=torch.from_numpy(ids[first : first + step]).to(self._device),
                attention_mask=torch.from_numpy(mask[first : first + step]).to(self._device),
            ).last_hidden_state
            for first in range(0, len(windows), step)
        ]
        return torch.cat(states).reshape(-1, self._dim), longest

    def _score_spans(self, head: str, states: Any, spans: "_Spans") -> Any:
        """Return float32[spans, classes] from start word, end word and width; the first layer is a sum of the three."""
        from torch.nn.functional import linear

        weight, bias = self._heads[head][0]
        of_start, of_end, of_width = weight.split([self._dim, self._dim, self._settings.n_features], dim=1)
        widths = linear(self._width_table, of_width, bias)
        first = linear(states, of_start)[spans.start] + linear(states, of_end)[spans.end] + widths[spans.width]
        return self._score(head, first)

    def _score(self, head: str, first: Any) -> Any:
        """Return the output of a head from that of its first layer."""
        from torch.nn.functional import linear

        for weight, bias in self._heads[head][1:]:
            first = linear(first.relu(), weight, bias)
        return first

    def _is_kept(self, mention: Any, spans: "_Spans") -> np.ndarray:
        """Tell which spans relations may join: in each report, the best of them by mention score."""
        is_kept = np.zeros(len(mention), bool)
        for number, n_words in enumerate(np.diff(spans.word_ptr)):
            first, end = spans.span_ptr[number : number + 2]
            # In float32 as in the package, where a product may round up to the next integer.
            k = math.ceil(np.float32(n_words) * np.float32(self._settings.spans_per_word))
            # On the CPU and report by report, so that equal scores fall as in the package.
            is_kept[first + mention[first:end].topk(int(min(max(k, 1), end - first))).indices.numpy()] = True
        return is_kept

    def _relate(self, states: Any, spans: "_Spans", mention: Any, related: np.ndarray) -> list[tuple[int, int, int]]:
        """Return (source span, target span, relation type), by source, then target, among spans of the same report."""
        import torch
        from torch.nn.functional import linear

        # All pairs of each report, a span with itself too, as places in `related`.
        ptr = np.searchsorted(related, spans.span_ptr)
        pairs = [np.indices((n, n)).reshape(2, -1) + first for first, n in zip(ptr[:-1], np.diff(ptr), strict=True)]
        source, target = np.concatenate(pairs, axis=1)
        vectors = torch.cat(
            [states[spans.start[related]], states[spans.end[related]], self._width_table[spans.width[related]]], dim=1
        )
        weight, bias = self._heads["relation"][0]
        of_source, of_target, of_product = weight.split(vectors.shape[1], dim=1)
        sources, targets, scores = linear(vectors, of_source), linear(vectors, of_target, bias), mention[related]
        found: list[tuple[int, int, int]] = []
        for begin in range(0, len(source), _PAIRS_PER_BATCH):
            a, b = source[begin : begin + _PAIRS_PER_BATCH], target[begin : begin + _PAIRS_PER_BATCH]
            first = sources[a] + targets[b] + linear(vectors[a] * vectors[b], of_product)
            kind = self._best(self._score("relation", first) + (scores[a] + scores[b])[:, None])
            is_one = kind > 0
            found += zip(
                related[a[is_one]].tolist(), related[b[is_one]].tolist(), (kind[is_one] - 1).tolist(), strict=True
            )
        return found

    def _best(self, scores: Any) -> np.ndarray:
        """Return the best class of each row, 0 for none, whose score is 0; the first of equal ones."""
        from torch.nn.functional import pad

        return pad(self._finite(scores), (1, 0)).max(dim=1).indices.cpu().numpy()

    def _finite(self, scores: Any) -> Any:
        if not scores.isfinite().all():
            msg = (
                f"{self._function}: archive must give finite scores; got NaN or infinity from {self._path}. "
                "Fetch it again."
            )
            raise InputError(msg)
        return scores


def split_words(text: str, model_type: str) -> list[str]:
    """Return the words of a report as the models were trained on them, at least one.

    The package leaves words to NLTK, whose later 3.10 versions take another engine and cut some that are not ASCII
    elsewhere (cm², accents as characters of their own). These are the words of the versions before.
    """
    if model_type == "radgraph":
        return _V1_MARK.sub(r" \1 ", text).split() or _EMPTY
    # The package has other rules for echograph and does not reach them.
    for escape, plain in _XL_ESCAPES:
        text = text.replace(escape, plain)
    text = " ".join(_XL_WORD.findall(text))
    for glued, parted in _XL_PARTED:
        text = text.replace(glued, parted)
    return text.split() or _EMPTY


def _unfolded(n: int, window: int) -> np.ndarray:
    """Return the places, among the `n` ids of all windows of a report, whose states make up the report.

    Of several windows the first and last state are dropped as those of special tokens, but for the report's own first
    and last. Windows without special tokens lose a word piece at each end, and the last words move up.
    """
    if n <= window:
        return np.arange(n)
    inner = np.arange(n)
    inner = inner[(inner % window != 0) & (inner % window != window - 1)]
    return np.concatenate([[0], inner[: n - 2 * math.ceil(n / window)], [n - 1]])


def _read_files(path: Path, function: str) -> tuple[dict[str, bytes], str]:
    """Return the files of an archive by name, and the sha256 of the archive (of a folder's weights)."""
    if path.is_dir():
        files = _read_folder(path, function)
    elif path.is_file():
        files = _read_archive(path, function)
    else:
        msg = f"{function}: archive must be an existing .tar.gz file or folder; got {path}. Check the name."
        raise InputError(msg)
    for name in ("config.json", "weights.th"):
        if name not in files:
            msg = f"{function}: archive must hold {name}; got none in {path}. Pass a published RadGraph archive."
            raise InputError(msg)
    if path.is_dir():
        return files, hashlib.sha256(files["weights.th"]).hexdigest()
    with path.open("rb") as file:
        return files, hashlib.file_digest(file, "sha256").hexdigest()


def _is_needed(name: str) -> bool:
    return name in ("config.json", "weights.th") or re.fullmatch(r"vocabulary/[^/]+\.txt", name) is not None


def _read_whole(file: IO[bytes], size: int, name: str, path: Path, function: str) -> bytes:
    most = _MOST_BYTES.get(name, _MOST_BYTES_ELSE)
    if size > most:
        msg = f"{function}: archive must have at most {most} bytes in {name}; got {size} in {path}. Fetch it again."
        raise InputError(msg)
    return file.read()


def _read_folder(path: Path, function: str) -> dict[str, bytes]:
    files = {}
    for inner in [path / "config.json", path / "weights.th", *sorted(path.glob("vocabulary/*.txt"))]:
        if inner.is_file():
            name = inner.relative_to(path).as_posix()
            with inner.open("rb") as file:
                files[name] = _read_whole(file, inner.stat().st_size, name, path, function)
    return files


def _read_archive(path: Path, function: str) -> dict[str, bytes]:
    """Read the needed members into memory, by exact name and in one pass; nothing is extracted."""
    files = {}
    try:
        with tarfile.open(path, "r:gz") as tar:
            for member in tar:
                name = member.name.removeprefix("./")
                if not _is_needed(name):
                    continue
                file = tar.extractfile(member) if member.isreg() else None
                if file is None:
                    msg = (
                        f"{function}: archive must hold {name} as a plain file; got a link or folder in {path}. "
                        "Fetch it again."
                    )
                    raise InputError(msg)
                files[name] = _read_whole(file, member.size, name, path, function)
            # To the end, where gzip has its checksum.
            while tar.fileobj is not None and tar.fileobj.read(1 << 20):
                pass
    except (InputError, PermissionError):
        raise
    except (tarfile.TarError, ValueError, EOFError, OSError, zlib.error):
        msg = (
            f"{function}: archive must be a whole .tar.gz file; got a damaged, cut or foreign one, {path}. "
            "Fetch it again."
        )
        raise InputError(msg) from None
    return files


def _read_vocabulary(files: Mapping[str, bytes], path: Path, function: str) -> tuple[str, list[str], list[str]]:
    """Return the model type, the labels (the first is empty, for no entity) and the relation types."""
    ending = "__ner_labels.txt"
    found = [name[len("vocabulary/") : -len(ending)] for name in files if name.endswith(ending)]
    types = [name for name in MODEL_TYPES if name in found]
    if len(types) != 1:
        msg = (
            f"{function}: archive must hold vocabulary/TYPE{ending} for one TYPE of {', '.join(MODEL_TYPES)}; "
            f"got {shown_names(sorted(found)) or 'none'} in {path}. Pass a published RadGraph archive."
        )
        raise InputError(msg)
    lists = []
    for kind in ("ner_labels", "relation_labels"):
        try:
            text = files[f"vocabulary/{types[0]}__{kind}.txt"].decode()
        except (KeyError, UnicodeDecodeError):
            text = ""
        lists.append(re.sub(r"\r?\n\Z", "", text).replace("\r\n", "\n").split("\n"))
    labels, relation_types = lists
    if labels[0] or len(labels) < 2 or not all(labels[1:]) or not all(relation_types):
        msg = (
            f"{function}: archive must have one name a line in its vocabulary, after an empty first line of the entity "
            f"labels; got another form in {path}. Pass a published RadGraph archive."
        )
        raise InputError(msg)
    return types[0], labels, relation_types


def _read_settings(raw: bytes, path: Path, function: str) -> _Settings:
    try:
        config = json.loads(raw)
    except (ValueError, RecursionError):
        config = None

    def value(key: str, rule: str, is_valid: Callable[[Any], bool], default: Any = None) -> Any:
        found = config
        for part in key.split("."):
            found = found.get(part, default) if isinstance(found, dict) else None
        if not is_valid(found):
            msg = (
                f"{function}: archive must have {rule} as {key} in config.json; got {found!r:.60} in {path}. "
                "Pass a published RadGraph archive."
            )
            raise InputError(msg)
        return found

    def count(key: str, least: int = 1) -> int:
        return value(key, f"an int of at least {least}", lambda n: type(n) is int and n >= least)

    indexer, embedder = "dataset_reader.token_indexers.bert", "model.embedder.token_embedders.bert"
    encoder = value(f"{embedder}.model_name", "a name", lambda name: isinstance(name, str) and 0 < len(name) < 200)
    value(f"{indexer}.model_name", f"the same name {encoder!r}", lambda name: name == encoder)
    window = count(f"{embedder}.max_length", 3)
    value(f"{indexer}.max_length", f"the same {window}", lambda n: n == window)
    for task in ("ner", "relation"):
        value(f"model.loss_weights.{task}", "a number above 0", lambda weight: _is_number(weight) and weight > 0)
    # It would change the spans' vectors; no published archive has it.
    value("model.modules.coref.coref_prop", "0", lambda n: n == 0, default=0)
    n_layers = count("model.feedforward_params.num_layers")
    sizes = "model.feedforward_params.hidden_dims"
    hidden = value(sizes, f"an int or {n_layers} of them", lambda n: type(n) is int or _are_counts(n, n_layers))
    max_width = count("dataset_reader.max_span_width")
    return _Settings(
        encoder=encoder,
        window=window,
        max_width=max_width,
        n_widths=count("model.max_span_width", max_width),
        n_features=count("model.feature_size"),
        hidden=hidden if isinstance(hidden, list) else [hidden] * n_layers,
        spans_per_word=value(
            "model.modules.relation.spans_per_word", "a number above 0", lambda n: _is_number(n) and 0 < n < math.inf
        ),
    )


def _are_counts(values: object, n: int) -> bool:
    return isinstance(values, list) and len(values) == n and all(type(value) is int for value in values)


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _read_tensors(content: bytes, path: Path, function: str) -> dict[str, Any]:
    import torch

    try:
        with warnings.catch_warnings():
            # PyTorch warns of plain pickles before it refuses them.
            warnings.simplefilter("ignore")
            tensors = torch.load(io.BytesIO(content), map_location="cpu", weights_only=True)
    except (pickle.UnpicklingError, RuntimeError, ValueError, EOFError, OSError, LookupError, AttributeError):
        tensors = None
    if not isinstance(tensors, dict) or not all(isinstance(value, torch.Tensor) for value in tensors.values()):
        msg = (
            f"{function}: archive must hold a PyTorch file of tensors without code as weights.th; "
            f"got a damaged or foreign one in {path}. Fetch it again."
        )
        raise InputError(msg)
    return {str(name): value for name, value in tensors.items() if not str(name).startswith(_UNUSED)}


def _check_tensors(
    tensors: Mapping[str, Any], expected: Mapping[str, tuple[int, ...]], path: Path, encoder: str, function: str
) -> None:
    problems = {
        "missing": [name for name in expected if name not in tensors],
        "unexpected": [name for name in tensors if name not in expected],
        "misshapen": [name for name in expected if name in tensors and tuple(tensors[name].shape) != expected[name]],
    }
    found = [
        f"{len(names)} {kind} ({', '.join([*names[:2], *(['...'] if len(names) > 2 else [])])})"
        for kind, names in problems.items()
        if names
    ]
    if found:
        msg = (
            f"{function}: archive must hold the tensors that its config.json and its encoder {encoder} have; "
            f"got {', '.join(found)} in {path}. Pass a published archive and the encoder of that name."
        )
        raise InputError(msg)


def _find_encoder(encoder: str | Path | None, name: str, function: str) -> Path:
    """Return the folder with configuration and tokenizer of the transformer."""
    from huggingface_hub import try_to_load_from_cache

    if encoder is not None:
        folder: Path | None = Path(encoder)
    elif Path(name).is_dir():
        folder = Path(name)
    else:
        try:
            cached = try_to_load_from_cache(name, "config.json")
        except ValueError:
            cached = None
        # Not a path: no such file, or a note that the repository has none.
        folder = Path(cached).parent if isinstance(cached, str) else None
    # Without the second file, transformers makes up a tokenizer that knows no word.
    if (
        folder is None
        or not (folder / "config.json").is_file()
        or not any((folder / file).is_file() for file in ("tokenizer.json", "vocab.txt"))
    ):
        got = folder or "nothing of that name here or in the Hugging Face cache"
        msg = (
            f"{function}: encoder must be a folder with config.json and tokenizer.json or vocab.txt of {name}; "
            f"got {got}. Fetch these files and pass their folder."
        )
        raise InputError(msg)
    return folder


def _build_encoder(folder: Path, function: str) -> tuple[Any, Any, tuple[int, int]]:
    """Return the transformer with no weights yet, its tokenizer and the ids of its start and end token."""
    import transformers

    try:
        config = transformers.AutoConfig.from_pretrained(folder, local_files_only=True, trust_remote_code=False)
        # transformers 4 would compile ModernBERT on a GPU.
        config.reference_compile = False
        model = transformers.AutoModel.from_config(config, attn_implementation="sdpa", trust_remote_code=False)
        tokenizer = transformers.AutoTokenizer.from_pretrained(folder, local_files_only=True, trust_remote_code=False)
        ids = tokenizer("a")["input_ids"]
        start, *inner, end = ids
        is_usable = inner == tokenizer("a", add_special_tokens=False)["input_ids"] and (
            max(tokenizer.get_vocab().values()) < model.get_input_embeddings().num_embeddings
        )
    # Whatever transformers and its tokenizers raise at foreign files, a bare Exception among it.
    except Exception as error:
        msg = (
            f"{function}: encoder must hold files that transformers {transformers.__version__} reads; "
            f"got {type(error).__name__} from {folder}. Fetch config.json and the tokenizer's files again."
        )
        raise InputError(msg) from error
    if not is_usable:
        msg = (
            f"{function}: encoder must have a tokenizer that adds a start and an end token and has no more word pieces "
            f"than config.json says; got another in {folder}. Fetch config.json and the tokenizer's files again."
        )
        raise InputError(msg)
    return model.float(), tokenizer, (start, end)
