"""Reports in any form with their sources: the function `reports`, which every function that takes reports accepts."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Annotated, Any, TypeAlias, Unpack

from annotated_doc import Doc

from metric_oracle.base.argument_checks import check_given, check_left_out, check_options, given_of
from metric_oracle.base.errors import InputError
from metric_oracle.base.progress import Progress, say, silent
from metric_oracle.base.validation import public
from metric_oracle.corpora.containers import in_order
from metric_oracle.corpora.kept_columns import say_apart
from metric_oracle.corpora.predictions import as_predictions
from metric_oracle.corpora.read import DEFAULT, Read, check_applies
from metric_oracle.corpora.reports import Reports, as_reports, column_names, with_kept
from metric_oracle.corpora.samples import Samples, read_samples
from metric_oracle.corpora.sections import JOINED
from metric_oracle.indexes.index import Index
from metric_oracle.indexes.prepared import prepared_reports
from metric_oracle.indexes.shards import is_prepared, opened, section_of
from metric_oracle.records import Metric
from metric_oracle.sources.attaching import ARGUMENTS, attach_sources, run_models
from metric_oracle.sources.availability import check_device, check_installed, named_models
from metric_oracle.sources.keywords import OF_ENCODER, Sources
from metric_oracle.sources.token_states import OpenedEncoder, load_encoder

# Reports in any form: a file or folder, a prepared folder, `Reports`, a list, dict, Arrow table, frame or dataset.
Given: TypeAlias = Any
# Test reports, as an argument of public functions.
Queries: TypeAlias = Annotated[
    Given,
    Doc(
        "Test reports, in any form that [`reports`][metric_oracle.reports] takes. By default their section is that of "
        "the index; another section is an error."
    ),
]


# Options of the models, how uncertain labels count, and the function that gets notes.
MODELS = ("radgraph_encoder", "vocabulary", "entity_encoder", "device", "uncertain", "tell")


# The call that takes an option of `Read`, for advice in messages.


@dataclass(frozen=True, repr=False, eq=False)
class AttachedReports:
    """Reports that are read when they are first used, with their sources. Made by `reports`.

    Two things depend on the function that uses them: the section, whose default is that of the index or of the other
    side; and the role, because empty predictions are scored, whereas empty references are left out and counted.

    Attributes
    ----------
    data : path, container, Reports, prepared folder or Index
    options : Read
        How they are read.
    sources : dict
        Sources that were given, by the name of the argument.
    models : dict
        Options of the models, how uncertain labels count, and the function that gets notes.
    of_encoder : dict
        Those of the arguments `encoder`, `layer`, `states`, `bf16` and `rescale_table` that were given.
    title : str
        What tables call the reports, from an oracle.toml; empty if it says nothing.
    """

    data: Given
    options: Read = DEFAULT
    sources: Mapping[str, Any] = field(default_factory=dict)
    models: Mapping[str, Any] = field(default_factory=dict)
    of_encoder: Mapping[str, Any] = field(default_factory=dict)
    title: str = ""
    _loaded: dict[tuple[str | None, tuple[str, ...]], Reports] = field(default_factory=dict)
    _written: dict[str | None, Reports] = field(default_factory=dict)  # predictions that were read
    _told: set[str] = field(default_factory=set)
    _indexes: dict[Any, Index] = field(default_factory=dict)  # in memory, see `retrieval.corpus_index`

    def __repr__(self) -> str:
        attached = ", ".join({**self.sources, **self.of_encoder}) or "nothing else"
        return f"<AttachedReports: {self.described} with {attached}>"

    @property
    def described(self) -> str:
        """The file, or the type of the object in memory."""
        return str(self.data) if isinstance(self.data, str | Path) else f"the {type(self.data).__name__} in memory"

    @property
    def name(self) -> str | None:
        """The title, or the name of the file up to its first full stop; None for reports in memory."""
        if self.title:
            return self.title
        return Path(self.data).name.partition(".")[0] if isinstance(self.data, str | Path) else None

    @property
    def texts(self) -> dict[str, str]:
        """The texts of the test reports by their ids, as far as `load` has read them."""
        return {name: text for one in self._loaded.values() for name, text in zip(one.ids, one.texts, strict=True)}

    @public
    def load(self, index: Any = None, progress: Progress | None = None, keep: Sequence[str] = ()) -> Reports:
        """Read the reports as test reports, and run the models that make their sources.

        Every function that takes test reports does this by itself. The result is stored, so that the work is done once.

        Parameters
        ----------
        index : path, Index or Results, optional
            What the reports are compared with. Its section is the default.
        progress : function, optional
            Called as ``progress(step, done, total)`` while a model runs.
        keep : sequence of str, optional
            Columns of a table to keep with the reports.

        Returns
        -------
        Reports
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

    def _load(self, default_section: str | None, keep: Sequence[str], progress: Progress) -> Reports:
        """Return what `load` stores: the reports with their sources."""
        check_left_out(self.of_encoder, "for test reports, whose index says it", allowed=("encoder",))
        reports = self.read(default_section=default_section, keep=keep)
        if reports.is_noted or (isinstance(self.data, str | Path) and reports.stored is None):
            self.tell_of("test reports", reports)
        encoder = self.of_encoder.get("encoder")
        return run_models(attach_sources(reports, encoder=encoder, progress=progress, **self.models, **self.sources))

    def with_sources(self, reports: Reports, progress: Progress | None = None) -> Reports:
        """Return reports that were read of these, with the sources that were given for them and their encoder."""
        opened_encoder = self.open_encoder(progress)
        options = {**self.models} | given_of({"progress": progress})
        return run_models(attach_sources(reports, opened_encoder=opened_encoder, **options, **self.sources))

    def read(
        self,
        *,
        predictions: bool = False,
        keep_empty: bool = False,
        default_section: str | None = None,
        keep: Sequence[str] = (),
    ) -> Reports:
        """Read ids and texts as predictions, which are stored, or as other reports; see `reports_of`.

        `keep` names columns to keep. Raise InputError if an option of the other role is given.
        """
        if predictions and default_section in self._written:
            return self._written[default_section]
        read = reports_of(self.data, self.options, predictions, keep_empty, default_section, keep)
        if predictions:
            self._written[default_section] = read
        if default_section is not None and not predictions and read.section is None and self._has_columns():
            line = f"section of the tests not known: they are compared with {default_section}"
            step = "Say it by `mo.reports(..., mo.Read(section=NAME))`"
            self._say_once(f"{line}. {step}", line, self.models.get("tell"))
        return read

    def tell_of(self, noun: str, read: Any, listener: Callable[[str], None] | None = None) -> None:
        """Tell what reading left out, counted as missing or chose, once; a listener hears what was read in any case.

        By default it is the function for notes that was given with the reports.
        """
        listener = listener or self.models.get("tell")
        if not self.is_loaded and (read.is_noted or listener is not None):
            self._say_once(f"{noun}: {read.told}", read.told, listener)

    @property
    def is_loaded(self) -> bool:
        """Whether these are reports with their sources, which were read, and told of, before."""
        return isinstance(self.data, Reports) and self.data.is_loaded

    def _has_columns(self) -> bool:
        """Return whether the reports are of a file or a table, of which the name of a column may tell the section."""
        if isinstance(self.data, Reports):
            return bool(self.data.ids_from.columns)
        return isinstance(self.data, str | Path) or hasattr(self.data, "columns")

    def _say_once(self, line: str, about: str, listener: Callable[[str], None] | None) -> None:
        """Tell a line about what was not told of these reports yet."""
        if about not in self._told:
            self._told.add(about)
            say(line, listener)

    def read_samples(self, column: str | None = None, wanted: str | None = None) -> Samples:
        """Read the reports as several for each study; see `corpora.samples.read_samples`, also for `column`.

        Samples of a file that hold both sections under their names are cut to the section `wanted`, unless it is None.
        Raise InputError if a reading option is given that samples do not have.
        """
        samples = read_samples(self.data, self.options, column=column)
        if wanted not in (None, JOINED) and samples.section == (JOINED, "headers") and samples is not self.data:
            cut = replace(self.options, section=wanted)  # type: ignore[arg-type]
            samples = read_samples(self.data, cut, column=column)
        return samples

    def with_ids(self, column: str) -> "AttachedReports":
        """Return the same reports, to be read by this column of ids."""
        return self.read_as(id_column=column)

    def read_as(self, **options: Any) -> "AttachedReports":
        """Return the same reports, to be read with further options of `Read`."""
        return replace(self, options=replace(self.options, **options), _loaded={}, _written={}, _indexes={})

    def column_names(self) -> list[str]:
        """Return the names of the columns that a table of these reports has, or that a prepared folder keeps."""
        if isinstance(self.data, Index) or is_prepared(self.data):
            return opened(self.data).columns
        return column_names(self.data, self.options.encoding, self.options.separator)

    def open_encoder(self, progress: Progress | None = None, **more: Any) -> OpenedEncoder | None:
        """Return the encoder of token states, opened with the further options `more` of `load_encoder`.

        None if no encoder was given.
        """
        if not self.of_encoder:
            return None
        of_models = given_of(self.models, ("device", "tell"))
        return load_encoder(progress=silent if progress is None else progress, **self.of_encoder, **more, **of_models)


def attached(data: Any) -> AttachedReports:
    """Return reports in any form as `AttachedReports`, which are returned unchanged."""
    return data if isinstance(data, AttachedReports) else AttachedReports(in_order(data))


@public
def reports(
    data: Annotated[
        Given,
        Doc(
            "A file or folder of reports, a folder of [`build_index`][metric_oracle.build_index], an index, or reports "
            'in memory: a list of texts (their ids are "0", "1", ...), a dict of id to text, an Arrow table, a Polars '
            "or pandas frame, or a Hugging Face dataset."
        ),
    ],
    read: Annotated[Read | None, Doc("How the reports are read, such as their section and split.")] = None,
    *,
    tell: Annotated[
        Callable[[str], None] | None, Doc("Called with each note, a line of text. By default notes are warnings.")
    ] = None,
    **sources: Unpack[Sources],
) -> AttachedReports:
    """Attach sources to reports, and state how they are read.

    Everything that belongs to reports is given here and nowhere else. Arguments are checked at once; files are read,
    and models run, when the reports are first used. Section and role depend on that use: see Notes. A source is a file,
    the same in memory (a dict of id to value, an array, a table), or a function that takes a list of texts and returns
    a value for each.

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
    >>> tests = mo.reports({"a": "no acute process"}, mo.Read(section="impression"))
    >>> mo.score(tests, {"a": "no acute disease"}, "rouge-l").mean()
    {'rouge-l': 0.6666666666666666}
    """
    arguments = {name: value for name, value in sources.items() if value is not None and value is not False}
    check_options(arguments, Sources.__annotations__)
    read = read or DEFAULT
    if isinstance(data, AttachedReports) or attached(data).is_loaded:
        check_left_out({**read.given, **arguments, "tell": tell}, "for reports that have their sources")
    lacking = [name for name in OF_ENCODER if name in arguments]
    if lacking:
        check_given(
            "encoder",
            arguments.get("encoder"),
            "with " + ", ".join(f"`{name}`" for name in lacking),
            "Add `mo.reports(..., encoder=NAME)` or a folder.",
        )
    return AttachedReports(
        in_order(data),
        read,
        given_of(arguments, ARGUMENTS),
        given_of({**arguments, "tell": tell}, MODELS),
        given_of(arguments, ("encoder", *OF_ENCODER)),
    )


def check_models(reports: AttachedReports, *others: object) -> None:
    """Raise BackendError if a library or device of a model that is attached to reports, or in `others`, is missing.

    Only reports whose notes are told (`tell`) are checked, as those of a command, which so ends before a file is read;
    in Python a model is opened by the function that runs it. A model in `others` that is None is not given.
    """
    if "tell" not in reports.models:
        return
    models = [*named_models(reports.sources), reports.of_encoder.get("encoder")]
    check_installed([*models, *others])
    check_device(reports.models.get("device"), models)


def say_wordless(
    metrics: Iterable[Metric], sides: Mapping[str, Sequence[str]], tell: Callable[[str], None] | None
) -> None:
    """Tell how many texts have no word under those metrics that read letters and digits; nothing if there is none.

    `sides` has the texts of each side by its noun in the message.
    """
    from metric_oracle.indexes.ngrams import n_wordless

    names = [metric.name for metric in metrics if "words" in metric.representations]
    for noun, texts in sides.items() if names else ():
        n = n_wordless(texts)
        if n:
            first = ", ".join(names[:3]) + ", ..." * (len(names) > 3)
            say(
                f"{n:,} of {len(texts):,} {noun} have no word under {first}: only the letters a to z and digits count, "
                "so they score 0 and tie",
                tell,
            )


def reports_of(
    data: Given,
    read: Read,
    predictions: bool = False,
    keep_empty: bool = False,
    default_section: str | None = None,
    keep: str | Sequence[str] = (),
) -> Reports:
    """Return reports; those of a prepared folder or an index have the sources that are stored there.

    Empty reports are kept of predictions, and of others with `keep_empty`. `default_section`, the section of the
    reports that they are compared with, is read where `read` names none. `keep` names columns to keep.
    """
    if isinstance(data, Index) or is_prepared(data):
        check_applies(read, "a prepared set")
        return with_kept(prepared_reports(opened(data)), keep)
    if predictions:
        return as_predictions(data, read, wanted=default_section)
    is_default = default_section is not None and read.section is None and not isinstance(data, Reports)
    if is_default:
        read = replace(read, section=default_section)  # type: ignore[arg-type]
    if keep_empty and not isinstance(data, Reports):
        read = replace(read, keep_empty=True)
    reports = as_reports(data, read, keep)
    # What the others have does not tell the section of texts whose column does not.
    is_untold = is_default and reports.section_by == "caller"
    return replace(reports, section=None, section_by="") if is_untold else reports


def loaded(
    queries: Given,
    index: Index,
    progress: Progress | None = None,
    keep: Sequence[str] = (),
    metrics: Sequence[Metric] = (),
) -> Reports:
    """Return test reports with their sources, for an index; those that are loaded are returned unchanged.

    `keep` names columns to keep. Texts without a word under one of `metrics`, which will read them, are told. Models
    that are to run are checked by `check_models`.
    """
    side = attached(queries)
    if side.is_loaded:
        return side.data
    is_encoded = not is_prepared(side.data)
    if index.is_of_call and (isinstance(side.data, Index) or not is_encoded):
        raise InputError(
            "index and queries",
            "must be the corpus and the test reports, in this order",
            "reports and an index",
            "Exchange them, or index the corpus with `mo.build_index` first.",
        )
    check_models(side, *(f"metric {metric.name!r}" for metric in metrics if metric.needs_encoder and is_encoded))
    reports = side.load(index, progress, keep)
    say_wordless(metrics, {"test reports": reports.texts}, side.models.get("tell"))
    say_columns_apart(index, reports, keep, side.models.get("tell"))
    return reports


def say_columns_apart(index: Index, queries: Reports, names: Sequence[str], tell: Callable[[str], None] | None) -> None:
    """Tell which of the named columns have no value, or nearly none, in common with those of the corpus."""
    for name in names:
        if name in queries.columns and name in index.columns:
            of_corpus = (value for shard in index.shards() for value in shard.strings(name).unique().to_pylist())
            say_apart(name, queries.columns[name], of_corpus, tell)
