"""Reports in any form with their sources: the function `reports`, which every function that takes reports accepts."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, TypeAlias, TypeVar

from metric_oracle import choices
from metric_oracle.arguments import check_given, check_left_out, given_of
from metric_oracle.corpora.containers import in_order
from metric_oracle.corpora.joining import shared_column
from metric_oracle.corpora.kept import check_kept
from metric_oracle.corpora.predictions import as_predictions
from metric_oracle.corpora.reports import Reports, as_reports, column_names, table_of
from metric_oracle.corpora.samples import Samples, read_samples
from metric_oracle.corpora.sections import JOINED
from metric_oracle.corpora.tables import series_of, shown_names, together
from metric_oracle.corpora.usual_names import GENERATED, matching
from metric_oracle.errors import InputError, called, option
from metric_oracle.indexes import manifest
from metric_oracle.indexes.index import Index
from metric_oracle.indexes.ngrams import n_wordless
from metric_oracle.indexes.prepared import prepared_inputs
from metric_oracle.indexes.shards import ShardSet, is_prepared, is_set, not_one_index, opened, section_of
from metric_oracle.metrics import Metric
from metric_oracle.progress import Progress, say, silent
from metric_oracle.sources.inputs import ARGUMENTS, Inputs, load_inputs
from metric_oracle.sources.token_states import Encoding, load_encoding

# Reports in any form: a file or folder, a prepared folder, `Reports`, a list, dict, Arrow table, frame or dataset.
Given: TypeAlias = Any


# Options for reading reports; see `corpora.reports.read_reports`.
READING = (
    "section",
    "id_column",
    "text_column",
    "split",
    "split_file",
    "profile",
    "keep_empty",
    "encoding",
    "separator",
    "keep",
)


# Options of the models, how uncertain labels count, and the function that gets notes.
MODELS = ("radgraph_encoder", "vocabulary", "entity_encoder", "device", "uncertain", "tell")


_One = TypeVar("_One", bound=tuple[Reports, Any] | Samples)
_Other = TypeVar("_Other", bound=tuple[Reports, Any] | Samples)
# Additional options for reading predictions: their ids, and how images are joined to studies.
PREDICTED = ("ids", "metadata", "seed", "after_impression")
OF_SAMPLES = ("id_column", "text_column", "section", "encoding", "separator")
ENCODING = ("layer", "states", "bf16", "rescale_table")


@dataclass(frozen=True, repr=False, eq=False)
class AttachedReports:
    """Reports that are read when they are first used, with their sources. Made by `reports`.

    Two things depend on the function that uses them: the section, whose default is that of the index or of the other
    side; and the role, because empty predictions are scored, whereas empty references are left out and counted.

    Attributes
    ----------
    data : path, container, Reports, prepared folder or Index
    reading : dict
        Options of the reader that were given, such as `split`.
    sources : dict
        Sources that were given, by the name of the argument.
    models : dict
        Options of the models, how uncertain labels count, and the function that gets notes.
    encoding : dict
        Those of the arguments `encoder`, `layer`, `states`, `bf16` and `rescale_table` that were given.
    """

    data: Given
    reading: Mapping[str, Any]
    sources: Mapping[str, Any]
    models: Mapping[str, Any]
    encoding: Mapping[str, Any]
    _loaded: dict[tuple[str | None, tuple[str, ...]], Inputs] = field(default_factory=dict)
    _told: set[str] = field(default_factory=set)

    def __repr__(self) -> str:
        return (
            f"<AttachedReports: {self.described} with {', '.join({**self.sources, **self.encoding}) or 'nothing else'}>"
        )

    @property
    def described(self) -> str:
        """The file, or the type of the object in memory."""
        return str(self.data) if isinstance(self.data, str | Path) else f"the {type(self.data).__name__} in memory"

    @property
    def name(self) -> str | None:
        """Name of the file, up to its first full stop; None for reports in memory."""
        return Path(self.data).name.partition(".")[0] if isinstance(self.data, str | Path) else None

    @called("reports", (*READING, *PREDICTED, *ARGUMENTS, *MODELS, "encoder", *ENCODING))
    def load(
        self, index: str | Path | Index | None = None, progress: Progress | None = None, keep: Sequence[str] = ()
    ) -> Inputs:
        """Read the reports as test reports, and run the models that make their sources.

        Every function that takes test reports does this by itself. The result is stored, so that the work is done once.

        Parameters
        ----------
        index : path or Index, optional
            Index that the reports are compared with. Its section is the default.
        progress : function, optional
            Called as ``progress(step, done, total)`` while a model runs.
        keep : sequence of str, optional
            Columns of a table to keep with the reports.

        Returns
        -------
        Inputs
            Ids and texts with graphs, vectors, labels, entities and token states.

        Raises
        ------
        InputError
            If a file cannot be read, does not belong to the reports, or an option does not fit.
        """
        key = section_of(index), tuple(keep)
        if key not in self._loaded:
            self._loaded[key] = self._load(*key, silent if progress is None else progress)
        return self._loaded[key]

    def _load(self, default_section: str | None, keep: Sequence[str], progress: Progress) -> Inputs:
        """Return what `load` stores: the reports with their sources."""
        check_left_out(self.encoding, "for test reports, whose index says it", allowed=("encoder",))
        reports, prepared = self.read(default_section=default_section, keep=keep, is_shown=True)
        is_shown = isinstance(self.data, Reports) and "tell" in self.models  # by the command that read them
        is_file = prepared is None and isinstance(self.data, str | Path)
        if reports.left_out or (reports.marks and not is_shown) or (is_file and "tell" in self.models):
            say(reports.left_out or f"test reports: {reports.source}", self.models.get("tell"))
        encoder = self.encoding.get("encoder")
        inputs = load_inputs(
            reports.ids, reports.texts, encoder=encoder, progress=progress, **self.models, **self.sources
        ).completed()
        inputs = replace(inputs, columns=reports.columns, section=reports.known_section, ids_from=reports.ids_from)
        return with_prepared(inputs, prepared)

    def read(
        self,
        *,
        predictions: bool = False,
        keep_empty: bool = False,
        default_section: str | None = None,
        keep: Sequence[str] = (),
        is_shown: bool = False,
    ) -> tuple[Reports, Inputs | None]:
        """Read ids and texts as predictions or as other reports; see `reports_of`, also for what is returned.

        `keep` names columns to keep. Words for missing reports and marks within texts are told, unless the caller shows
        (`is_shown`) the source. Raise InputError if an option of the other role is given.
        """
        of_role = ("split_file", "profile", "keep_empty") if predictions else PREDICTED
        role = "predictions" if predictions else "reports that are no predictions"
        check_left_out({name: self.reading.get(name) for name in of_role}, f"for {role}")
        reading = {**self.reading, **({"keep": keep} if keep else {})}
        read = reports_of(
            self.data, reading, predictions=predictions, keep_empty=keep_empty, default_section=default_section
        )
        if default_section is not None and not predictions and read[0].section is None and self._has_columns():
            python = "mo.read_reports(..., section=NAME)" if isinstance(self.data, Reports) else ""
            self._say_once(
                f"section of the tests not known: they are compared with {default_section}. "
                f"Say it by {option('section', 'NAME', python=python)}"
            )
        line = f"{'predictions' if predictions else 'reports'}: {read[0].source}"
        if (read[0].words or read[0].marks) and not is_shown:
            self._say_once(line)
        return read

    def _has_columns(self) -> bool:
        """Return whether the reports are of a file or a table, of which the name of a column may tell the section."""
        if isinstance(self.data, Reports):
            return bool(self.data.ids_from.columns)
        return isinstance(self.data, str | Path) or hasattr(self.data, "columns")

    def _say_once(self, line: str) -> None:
        """Tell a line that was not told of these reports yet."""
        if line not in self._told:
            self._told.add(line)
            say(line, self.models.get("tell"))

    def read_samples(self, column: str | None = None, wanted: str | None = None) -> Samples:
        """Read the reports as several for each study; see `corpora.samples.read_samples`, also for `column`.

        Samples of a file that hold both sections under their names are cut to the section `wanted`, unless it is None.
        Remarks on the file are told. Raise InputError if a reading option is given that samples do not have.
        """
        check_left_out(self.reading, "for samples", allowed=OF_SAMPLES)
        samples = read_samples(self.data, column=column, **self.reading)
        if wanted not in (None, JOINED) and samples.section == (JOINED, "headers") and samples is not self.data:
            samples = read_samples(self.data, column=column, **{**self.reading, "section": wanted})
        if samples.remarks:
            say(samples.source, self.models.get("tell"))
        return samples

    def beside(self, references: "AttachedReports") -> "AttachedReports":
        """Return these predictions, to be read by the columns named for the references, where this file has them too.

        A column that is called `prediction` or the like is before the references' column of texts, and that of the
        same file is not taken at all.
        """
        names = [name for name in ("id_column", "text_column") if name not in self.reading]
        named = given_of(references.reading, names)
        is_read = isinstance(self.data, Reports | Inputs | Index | ShardSet | Samples) or is_prepared(self.data)
        if not named or is_read:
            return self
        columns = self.column_names()
        is_same = self.data is references.data or (self.name is not None and self.described == references.described)
        if is_same or matching(columns, GENERATED):
            named.pop("text_column", None)
        if "ids" in self.reading:
            named.pop("id_column", None)
        in_both = {name: column for name, column in named.items() if column in columns}
        return replace(self, reading={**self.reading, **in_both}, _loaded={})

    def with_ids(self, column: str) -> "AttachedReports":
        """Return the same reports, to be read by this column of ids."""
        return replace(self, reading={**self.reading, "id_column": column}, _loaded={})

    def column_names(self) -> list[str]:
        """Return the names of the columns that a table of these reports has, or that a prepared folder keeps."""
        if isinstance(self.data, Inputs):
            return [*self.data.columns]
        if isinstance(self.data, Index) or is_prepared(self.data):
            return opened(self.data).columns
        return column_names(self.data, **given_of(self.reading, ("encoding", "separator")))

    def open_encoding(self, progress: Progress | None = None, **more: Any) -> Encoding | None:
        """Return the encoder of token states, opened with the further options `more` of `load_encoding`.

        None if no encoder was given.
        """
        if not self.encoding:
            return None
        of_models = given_of(self.models, ("device", "tell"))
        return load_encoding(progress=silent if progress is None else progress, **self.encoding, **more, **of_models)


def with_prepared(inputs: Inputs, prepared: Inputs | None) -> Inputs:
    """Return `inputs` with the sources and columns of `prepared`, from a prepared folder, if that is not None.

    A source that `inputs` already has is kept.
    """
    if prepared is None:
        return inputs
    sources = {**prepared.attached, **inputs.attached}
    return replace(inputs, attached=sources, columns=prepared.columns, stored=prepared.stored)


def read_joined(
    one: AttachedReports,
    read: Callable[[AttachedReports], _One],
    other: AttachedReports,
    read_other: Callable[[AttachedReports, _One | None], _Other],
) -> tuple[_One, _Other]:
    """Return both sides as their functions read them, the second after the first, of which it gets the result.

    Where both have one column of ids in common, they are read again by that column.
    """
    first, second = together(lambda: read(one), lambda found: read_other(other, found))
    names = shared_column(*((side[0] if isinstance(side, tuple) else side).ids_from for side in (first, second)))
    if names is None:
        return first, second
    first = read(one.with_ids(names[0]))
    return first, read_other(other.with_ids(names[1]), first)


def pairs_of_one_table(
    references: AttachedReports, predictions: AttachedReports
) -> tuple[AttachedReports, AttachedReports]:
    """Return both sides, with rows as ids if they are two columns of one table without ids.

    Raise InputError if the two columns of such a table are not named.
    """
    both = (references, predictions)
    is_file = all(isinstance(side.data, str | Path) for side in both)
    is_told = any(name in side.reading for side in both for name in ("id_column", "ids"))
    if is_told or isinstance(references.data, Reports | Inputs | Index):
        return both
    if not (Path(references.data) == Path(predictions.data) if is_file else references.data is predictions.data):
        return both
    table = table_of(references.data, **given_of(references.reading, ("encoding", "separator")))
    if table is None or table.has_ids:
        return both
    columns = [side.reading.get("text_column") for side in both]
    if None in columns or columns[0] == columns[1]:
        raise InputError(
            "references and predictions",
            "must be two columns of a table without ids that is given for both",
            f"{shown_names([name or 'no name' for name in columns])} of the columns {table.header}",
            f"Pass {option('text_column', 'NAME', python='mo.reports(references, text_column=NAME)')} and "
            f"{option('predicted_text_column', 'NAME', python='mo.reports(predictions, text_column=NAME)')}.",
        )
    of_files = ("encoding", "separator")
    numbered = replace(table, keys=series_of("row", range(table.n_rows)))
    readings = [{name: value for name, value in side.reading.items() if name not in of_files} for side in both]
    first, second = (
        replace(side, data=numbered, reading=reading) for side, reading in zip(both, readings, strict=True)
    )
    return first, second


def attached(data: Any) -> AttachedReports:
    """Return reports in any form as `AttachedReports`, which are returned unchanged."""
    return data if isinstance(data, AttachedReports) else AttachedReports(in_order(data), {}, {}, {}, {})


@called("reports")
def reports(
    data: Given,
    *,
    section: choices.Section | None = None,
    split: str | None = None,
    split_file: str | Path | None = None,
    id_column: str | None = None,
    text_column: str | None = None,
    profile: choices.Profile | None = None,
    keep_empty: bool = False,
    encoding: str | None = None,
    separator: str | None = None,
    ids: str | Path | None = None,
    metadata: str | Path | None = None,
    seed: choices.Seed | None = None,
    after_impression: bool = False,
    radgraph: Any = None,
    chexbert: Any = None,
    chexbert_ids: Any = None,
    chexbert_labels: Any = None,
    labels: Any = None,
    srr_labels: Any = None,
    entities: Any = None,
    sentences: Any = None,
    embeddings: Any = None,
    embedding_ids: Any = None,
    uncertain: str | None = None,
    encoder: str | Path | None = None,
    layer: int | None = None,
    states: choices.States | None = None,
    bf16: bool = False,
    rescale_table: str | Path | None = None,
    radgraph_encoder: str | Path | None = None,
    vocabulary: str | Path | None = None,
    entity_encoder: str | Path | None = None,
    device: str | None = None,
    tell: Callable[[str], None] | None = None,
) -> AttachedReports:
    """Attach sources to reports, and state how they are read.

    This is the only function with more than ten parameters, because everything that belongs to reports is given here
    and nowhere else. Arguments are checked at once; files are read, and models run, when the reports are first used.
    Section and role depend on that use: see Notes.

    Parameters
    ----------
    data : path, list of str, dict, table or Index
        A file or folder of reports, a folder of [`build_index`][metric_oracle.build_index], or reports in memory: a
        list of texts (their ids are "0", "1", ...), a dict of id to text, an Arrow table, a Polars or pandas frame, or
        a Hugging Face dataset.
    section : {"impression", "findings", "findings+impression"}, optional
        Section of the reports. By default that of the index or of the other side, or else the impression.
    split : str, optional
        Names of splits joined with "+", such as "train+validate".
    split_file : path, optional
        Table with the split of each id; by default the column `split` of the reports.
    id_column, text_column : str, optional
        Columns of a table. By default they are recognized by their names.
    profile : {"yu2023", "mit"}, optional
        Rule for the sections of MIMIC-CXR report files, by default "yu2023".
    keep_empty : bool, default False
        Whether to keep reports that are empty or have no letter or digit. Missing ones are always left out.
    encoding : str, optional
        Encoding of a text file, such as "cp1252". By default it is detected.
    separator : str, optional
        Separator of a CSV or TSV file. By default it is detected.
    ids, metadata : path, optional
        Predictions: the file with the ids of the rows, and the MIMIC-CXR metadata that joins images to studies.
    seed : int, optional
        Predictions: seed of the choice among the images of a study, by default 0.
    after_impression : bool, default False
        Predictions: whether to keep only the text after the word "impression".
    radgraph : path, dict or function, optional
        RadGraph graphs, as JSON or as the package radgraph returns them; or the model that makes them: its archive, or
        a function of a list of texts.
    chexbert : path, array float[n, d], dict or function, optional
        CheXbert embeddings; or the model that makes them: ``chexbert.pth``, or a function of a list of texts.
    chexbert_ids : path or sequence of str, optional
        Ids of the rows of `chexbert`, if it has none.
    chexbert_labels : path, table, dict, array int[n, 14] or function, optional
        CheXbert classes: 0 blank, 1 positive, 2 negative, 3 uncertain.
    labels : path, table or function, optional
        Table of any labels: one column for each label, with 1, 0, -1 (uncertain) or an empty cell (not labelled).
    srr_labels : path, table or function, optional
        Labels of SRR-BERT: a column for each label, 1 or 0.
    entities : path, dict or function, optional
        Entities with their vectors; or the folder of the model RaTE-NER.
    sentences : path, list or function, optional
        Vectors of the sentences of each report.
    embeddings : path, array float[n, d], dict or function, optional
        Embeddings of any other model.
    embedding_ids : path or sequence of str, optional
        Ids of the rows of `embeddings`, if it has none.
    uncertain : {"positive", "negative", "blank"}, optional
        What an uncertain label counts as. Required if there are any.
    encoder : str or path, optional
        Encoder of BERTScore: a folder, or the name of a Hugging Face model. Test reports are encoded by the encoder of
        the index, which is found where it was when the index was built unless this argument gives another place.
    layer : int, optional
        Number of the encoder's layer whose hidden states are compared, by default that of the publication.
    states : {"float32", "float16"}, optional
        Precision in which an index stores token states, by default "float32".
    bf16 : bool, default False
        Whether to run the encoder in bfloat16, which changes the scores. It is faster on a GPU and on processors with
        AVX-512 or AMX, and slower on others.
    rescale_table : path, optional
        Table of baselines of the package bert_score for this encoder.
    radgraph_encoder : path, optional
        Folder of the transformer that the RadGraph archive names.
    vocabulary : path, optional
        ``vocab.txt`` of bert-base-uncased, for ``chexbert.pth``.
    entity_encoder : path, optional
        Folder of BioLORD-2023-C, which encodes the entities of RaTE-NER.
    device : {"cpu", "cuda"}, optional
        Device that runs the models, by default "cuda" if there is a GPU.
    tell : function, optional
        Called with each note, a line of text. By default notes are warnings.

    Returns
    -------
    AttachedReports
        Accepted by every function that takes reports. Files are read and models run once.

    Raises
    ------
    InputError
        If an argument is wrong. The contents of files are checked when they are read.

    Notes
    -----
    Among references and test reports, missing and empty reports are left out and counted. Empty predictions are scored,
    because a model wrote them.

    Examples
    --------
    >>> import metric_oracle as mo
    >>> tests = mo.reports({"a": "no acute process"}, section="impression")
    >>> mo.score(tests, {"a": "no acute disease"}, "rouge-l").mean()
    {'rouge-l': 0.6666666666666666}
    """
    own = {name: value for name, value in locals().items() if value is not None and value is not False}
    if isinstance(data, AttachedReports | Inputs):
        check_left_out(own, "for reports that have their sources", allowed=("data",))
    lacking = [name for name in ENCODING if name in own]
    if lacking:
        check_given(
            "encoder",
            encoder,
            f"with {', '.join(map(option, lacking))}",
            f"Add {option('encoder', 'NAME')} or a folder.",
        )
    return AttachedReports(
        in_order(data),
        {name: own[name] for name in (*READING, *PREDICTED) if name in own},
        {name: own[name] for name in ARGUMENTS if name in own},
        {name: own[name] for name in MODELS if name in own},
        {name: own[name] for name in ("encoder", *ENCODING) if name in own},
    )


def say_wordless(
    metrics: Iterable[Metric], sides: Mapping[str, Sequence[str]], tell: Callable[[str], None] | None
) -> None:
    """Tell how many texts have no word under those metrics that read letters and digits; nothing if there is none.

    `sides` has the texts of each side by its noun in the message.
    """
    names = [metric.name for metric in metrics if "words" in metric.representations]
    for noun, texts in sides.items() if names else ():
        n = n_wordless(texts)
        if n:
            shown = ", ".join(names[:3]) + ", ..." * (len(names) > 3)
            say(
                f"{n:,} of {len(texts):,} {noun} have no word under {shown}: only the letters a to z and digits count, "
                "so they score 0 and tie",
                tell,
            )


def reports_of(
    data: Given,
    reading: Mapping[str, Any],
    *,
    predictions: bool = False,
    keep_empty: bool = False,
    default_section: str | None = None,
) -> tuple[Reports, Inputs | None]:
    """Return reports, and for a prepared folder, an index or Inputs the inputs that are stored in it, else None.

    `reading` has the options of the reader. Empty reports are kept of predictions, and of others with `keep_empty`.
    `default_section` is the section of the reports that they are compared with, which is the default of `section`.
    """
    prepared = data if isinstance(data, Inputs) else None
    source = ""
    if isinstance(data, ShardSet) or (isinstance(data, str | Path) and is_set(Path(data))):
        raise not_one_index(data.folder if isinstance(data, ShardSet) else Path(data))
    if isinstance(data, Index) or (isinstance(data, str | Path) and (Path(data) / manifest.NAME).is_file()):
        index = opened(data)
        prepared = prepared_inputs(index)
        source = f"prepared set {index.folder.name}: {index.content['source']}"
    if prepared is None and predictions:
        return as_predictions(data, wanted=default_section, **reading), None
    if prepared is None:
        is_default = default_section is not None and "section" not in reading and not isinstance(data, Reports)
        if is_default:
            reading = {"section": default_section, **reading}
        if keep_empty and not isinstance(data, Reports):
            reading = {**reading, "keep_empty": True}
        read = as_reports(data, **reading)
        # What the others have does not tell the section of texts whose column does not.
        return replace(read, section=None, section_by="") if is_default and read.section_by == "caller" else read, None
    usual = {"profile": "yu2023", "seed": 0}
    chosen = {name: value for name, value in reading.items() if value not in (False, usual.get(name))}
    check_left_out(chosen, "for a prepared set", allowed=("keep",))
    prepared = replace(prepared, columns=_kept(prepared, reading.get("keep") or ()))
    counts = {"rows": len(prepared.ids), "kept": len(prepared.ids)}
    states: dict[str, list[str]] = {"missing": [], "empty": [], "tokenless": []}
    return Reports(list(prepared.ids), list(prepared.texts), source, counts, states, *prepared.section), prepared


def _kept(prepared: Inputs, names: str | Sequence[str]) -> dict[str, Sequence[str]]:
    """Return those columns of a prepared folder that `names` asks for, by default all; raise InputError for another."""
    wanted = check_kept(names) or tuple(prepared.columns)
    for name in wanted:
        if name not in prepared.columns:
            raise InputError(
                f"the prepared reports have no column {name!r}.",
                f"Build them again with {option('keep', name)}; they have {', '.join(prepared.columns) or 'none'}.",
            )
    return {name: prepared.columns[name] for name in wanted}


def loaded(
    queries: Given,
    index: Index,
    progress: Progress | None = None,
    keep: Sequence[str] = (),
    metrics: Sequence[Metric] = (),
) -> Inputs:
    """Return test reports as Inputs for an index; loaded reports are returned unchanged.

    `keep` names columns to keep. Texts without a word under one of `metrics`, which will read them, are told.
    """
    if isinstance(queries, Inputs):
        return queries
    side = attached(queries)
    inputs = side.load(index, progress, keep)
    say_wordless(metrics, {"test reports": inputs.texts}, side.models.get("tell"))
    return inputs
