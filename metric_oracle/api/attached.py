"""Reports with what metrics read in addition to their texts: the only place where Python attaches it."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields, replace
from inspect import signature
from pathlib import Path
from typing import Any

from metric_oracle.api.given import MODELS, READING, Given, reports_of, say, section_of
from metric_oracle.api.given import split as given_of
from metric_oracle.corpora.reports import Reports, check_left_out, check_profile, check_section
from metric_oracle.errors import InputError, called
from metric_oracle.indexes.index import Index
from metric_oracle.indexes.inputs import ARGUMENTS, Inputs, load_inputs
from metric_oracle.progress import Progress, silent
from metric_oracle.retrieval.options import SearchOptions
from metric_oracle.sources.token_states import Encoding, load_encoding

# How predictions are read in addition: where their ids are, and how images become studies.
PREDICTED = ("ids", "metadata", "seed", "after_impression")
ENCODING = ("layer", "states", "bf16", "rescale_table")


@dataclass(frozen=True, repr=False, eq=False)
class AttachedReports:
    """Reports that are read when they are first used, with their sources. Made by `reports`.

    Two things are decided by the use: the section, which is by default that of the index or of the other side; and the
    role. Empty predictions are scored, empty references are left out and counted.

    Attributes
    ----------
    data : path, container, Reports, prepared folder or Index
    reading : dict
        Options of the reader that were given.
    sources : dict
        What was given for the metrics to read, by the name of the argument.
    models : dict
        What models need, how labels are counted, and who is told.
    encoding : dict
        `encoder`, `layer`, `states`, `bf16` and `rescale_table`, as far as they were given.
    """

    data: Given
    reading: Mapping[str, Any]
    sources: Mapping[str, Any]
    models: Mapping[str, Any]
    encoding: Mapping[str, Any]
    _loaded: dict[str | None, Inputs] = field(default_factory=dict)

    def __repr__(self) -> str:
        what = str(self.data) if isinstance(self.data, str | Path) else f"the {type(self.data).__name__} in memory"
        return f"<AttachedReports: {what} with {', '.join({**self.sources, **self.encoding}) or 'nothing else'}>"

    @property
    def name(self) -> str | None:
        """Name of the file, up to its first full stop; None for reports in memory."""
        return Path(self.data).name.partition(".")[0] if isinstance(self.data, str | Path) else None

    @called("reports", (*READING, *PREDICTED, *ARGUMENTS, *MODELS, "encoder", *ENCODING))
    def load(self, index: str | Path | Index | None = None, progress: Progress | None = None) -> Inputs:
        """Read the reports as test reports, and run the models that make what the metrics read.

        Every function that takes test reports does this by itself. The result is kept, so that a second use costs
        nothing.

        Parameters
        ----------
        index : path or Index, optional
            What they are compared with. Its section is the default.
        progress : function, optional
            Called as ``progress(step, done, total)`` while a model runs.

        Returns
        -------
        Inputs
            Ids and texts with graphs, vectors, labels, entities and token states.

        Raises
        ------
        InputError
            If a file cannot be read, does not belong to the reports, or an option does not fit.
        """
        like = section_of(index)
        if like not in self._loaded:
            self._loaded[like] = self._load(like, progress or silent)
        return self._loaded[like]

    def _load(self, like: str | None, progress: Progress) -> Inputs:
        check_left_out(
            [name for name in self.encoding if name != "encoder"], (), "reports", "test reports, whose index says it"
        )
        reports, prepared = self.read("reports", like=like)
        if reports.left_out:
            say(reports.left_out, self.models.get("tell"))
        encoder = self.encoding.get("encoder")
        inputs = load_inputs(
            reports.ids, reports.texts, "reports", encoder=encoder, progress=progress, **self.models, **self.sources
        ).completed()
        return replace(with_prepared(inputs, prepared), section=reports.said)

    def read(
        self, function: str, *, predictions: bool = False, keep_empty: bool = False, like: str | None = None
    ) -> tuple[Reports, Inputs | None]:
        """Read ids and texts in a role, and return what a prepared folder holds for them; see `reports_of`."""
        of_role = ("split_file", "profile", "keep_empty") if predictions else PREDICTED
        role = "predictions" if predictions else "reports that are no predictions"
        check_left_out([name for name in of_role if name in self.reading], (), function, role)
        return reports_of(self.data, function, self.reading, predictions=predictions, keep_empty=keep_empty, like=like)

    def open_encoding(self, function: str, progress: Progress | None = None, **more: Any) -> Encoding | None:
        """Open the encoder of token states, None where none was given."""
        if not self.encoding:
            return None
        of_models = given_of(self.models, ("device", "tell"))
        return load_encoding(function=function, progress=progress or silent, **self.encoding, **more, **of_models)


def with_prepared(inputs: Inputs, prepared: Inputs | None) -> Inputs:
    """Add what a prepared set holds to what was given for the reports."""
    return inputs if prepared is None else replace(inputs, attached={**prepared.attached, **inputs.attached})


def attached(given: Any) -> AttachedReports:
    """Return reports as `reports` does, where nothing is attached."""
    return given if isinstance(given, AttachedReports) else AttachedReports(given, {}, {}, {}, {})


@called("reports")
def reports(
    data: Given,
    *,
    section: str | None = None,
    split: str | None = None,
    split_file: str | Path | None = None,
    id_column: str | None = None,
    text_column: str | None = None,
    profile: str | None = None,
    keep_empty: bool = False,
    encoding: str | None = None,
    separator: str | None = None,
    ids: str | Path | None = None,
    metadata: str | Path | None = None,
    seed: int | None = None,
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
    states: str | None = None,
    bf16: bool = False,
    rescale_table: str | Path | None = None,
    radgraph_encoder: str | Path | None = None,
    vocabulary: str | Path | None = None,
    entity_encoder: str | Path | None = None,
    device: str | None = None,
    tell: Callable[[str], None] | None = None,
) -> AttachedReports:
    """Return reports with their sources: how they are read, and what metrics read in addition to the texts.

    This is the only function with more than ten parameters, because everything that belongs to reports is given here
    and nowhere else. Arguments are checked at once; files are read, and models run, when the reports are first used.
    What a reader decides by the use is the section and the role: see Notes.

    Parameters
    ----------
    data : path, list of str, dict, table or Index
        A file or folder of reports, a folder of [`build_index`][metric_oracle.build_index], or reports in memory: a
        list of texts (their ids are "0", "1", ...), a dict of id to text, an Arrow table, a Polars or pandas frame, or
        a
        Hugging Face dataset.
    section : {"impression", "findings", "findings+impression"}, optional
        Section of the reports. By default that of the index or of the other side, or else the impression.
    split : str, optional
        Names of splits joined with "+", such as "train+validate".
    split_file : path, optional
        Table with the split of each id; by default the column `split` of the reports.
    id_column, text_column : str, optional
        Columns of a table, where their names do not say it.
    profile : {"yu2023", "mit"}, optional
        Rule for the sections of MIMIC-CXR report files, by default "yu2023".
    keep_empty : bool, default False
        Keep reports that are empty or have no alphanumeric character. Missing ones are always left out.
    encoding : str, optional
        Encoding of a text file, such as "cp1252".
    separator : str, optional
        Separator of a CSV or TSV file.
    ids, metadata : path, optional
        Predictions: the file with the ids of the rows, and the MIMIC-CXR metadata that joins images to studies.
    seed : int, optional
        Predictions: chooses among the images of a study, by default 0.
    after_impression : bool, default False
        Predictions: keep what follows the word "impression".
    radgraph : path, dict or function, optional
        RadGraph annotations (JSON, or what the package returns); or the model: its archive, or a function of texts.
    chexbert : path, array float[n, d], dict or function, optional
        CheXbert embeddings; or ``chexbert.pth``, or a function of texts.
    chexbert_ids : path or sequence of str, optional
        Ids of the rows of `chexbert`, where it has none.
    chexbert_labels : path, table, dict, array int[n, 14] or function, optional
        CheXbert classes: 0 blank, 1 positive, 2 negative, 3 uncertain.
    labels : path, table or function, optional
        Table of any labels: a column for each label with 1, 0, -1 (uncertain) or nothing (not labelled).
    srr_labels : path, table or function, optional
        Labels of SRR-BERT: a column for each label, 1 or 0.
    entities : path, dict or function, optional
        Entities with their vectors; or the folder of RaTE-NER.
    sentences : path, list or function, optional
        Vectors of the sentences of each report.
    embeddings : path, array float[n, d], dict or function, optional
        Embeddings of any other model.
    embedding_ids : path or sequence of str, optional
        Ids of the rows of `embeddings`, where it has none.
    uncertain : {"positive", "negative", "blank"}, optional
        What an uncertain label counts as; required where there are any.
    encoder : str or path, optional
        Encoder of BERTScore: a folder, or a Hugging Face name. For test reports where it is now, by default where it
        was when the index was built.
    layer : int, optional
        Layer of the encoder, by default the published one.
    states : {"float32", "float16"}, optional
        Type in which an index stores token states, by default "float32".
    bf16 : bool, default False
        Run the encoder in bfloat16: faster, with other scores.
    rescale_table : path, optional
        Table of baselines of the package bert_score for this encoder.
    radgraph_encoder : path, optional
        Folder of the transformer that the RadGraph archive names.
    vocabulary : path, optional
        ``vocab.txt`` of bert-base-uncased, for ``chexbert.pth``.
    entity_encoder : path, optional
        Folder of BioLORD-2023-C, which encodes the entities of RaTE-NER.
    device : {"cpu", "cuda"}, optional
        Where models run, by default "cuda" where there is a GPU.
    tell : function, optional
        Called with lines for people. By default they are warnings.

    Returns
    -------
    AttachedReports
        May be given wherever reports are taken. Loaded reports are kept, so that a second use costs nothing.

    Raises
    ------
    InputError
        If an argument is wrong. What the files hold is checked when they are read.

    Notes
    -----
    As references and test reports, missing and empty reports are left out and counted. As predictions, empty ones are
    scored, because a model wrote them.

    Examples
    --------
    >>> import metric_oracle as mo
    >>> tests = mo.reports({"a": "no acute process"}, section="impression")
    >>> mo.score(tests, {"a": "no acute disease"}, "rouge-l").mean()
    {'rouge-l': 0.6666666666666666}
    """
    own = {name: value for name, value in locals().items() if value is not None and value is not False}
    if isinstance(data, AttachedReports | Inputs):
        check_left_out(own.keys() - {"data"}, (), "reports", "reports that have their sources")
    if section is not None:
        check_section(section, "reports")
    if profile is not None:
        check_profile(profile)
    lacking = [name for name in ENCODING if name in own]
    if lacking and encoder is None:
        msg = f"reports: encoder must be given with {', '.join(lacking)}; got None. Add --encoder NAME or a folder."
        raise InputError(msg)
    return AttachedReports(
        data,
        {name: own[name] for name in (*READING, *PREDICTED) if name in own},
        {name: own[name] for name in ARGUMENTS if name in own},
        {name: own[name] for name in MODELS if name in own},
        {name: own[name] for name in ("encoder", *ENCODING) if name in own},
    )


def homes() -> dict[str, str]:
    """Return the arguments of `reports` and of SearchOptions with the form in which a call gives them."""
    own = {field.name: "options=mo.SearchOptions({})" for field in fields(SearchOptions)}
    return own | {name: "mo.reports(..., {})" for name in signature(reports).parameters if name != "data"}
