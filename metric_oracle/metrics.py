"""The registry: one record for each metric and variant, each source and each representation.

A new metric is one record here, one folder under ``kernels/`` (or none, if it is another kernel with other options),
and one row in the shared tests. A new representation is one more record and one file under ``indexes/``. Everything
else that names a metric is derived from these records.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from difflib import get_close_matches
from importlib import import_module
from types import MappingProxyType
from typing import Any

from metric_oracle.errors import InputError, as_called, option


@dataclass(frozen=True)
class SourceRecord:
    """A source: data that metrics read in addition to the text.

    This record has the names and options of the source. The class that `home` names, in `sources`, implements it:
    files, models, prepared folders. The record is separate so that the command line can list options without loading
    the class.
    """

    name: str  # name of the source, and of the representation that is made from it
    home: str  # module and class, as `module:Class`, imported when needed; see `sources.contract`
    noun: str  # what one report has, such as "a graph", for messages
    plural: str  # what several reports have, such as "graphs"
    arguments: tuple[str, ...]  # arguments of public functions: the values and, if their files may lack ids, the ids
    option: str = ""  # options to name in advice, for one set of reports; see `errors.option`
    both_sides: str = ""  # the same for references and predictions
    model: str = ""  # model that can be given in place of a file, for the help of options; empty if there is none
    made_by: str = ""  # name of another source whose model also makes this one
    model_arguments: tuple[str, ...] = ()  # arguments for further files of the model
    settings: tuple[str, ...] = ()  # arguments that change the meaning of the values, such as `uncertain`
    # "attached": joined to the reports on their ids, from files, from memory or by a model. "encoded": made by an
    # encoder when an index is built or searched. "pairs": not stored, because a model reads both reports together.
    made: str = "attached"

    def load_class(self) -> Any:
        """Import and return the class that `home` names."""
        module, name = self.home.split(":")
        return getattr(import_module(module), name)


SOURCES: dict[str, SourceRecord] = {
    record.name: record
    for record in (
        SourceRecord(
            "radgraph",
            "metric_oracle.sources.radgraph:RadGraphSource",
            "a graph",
            "graphs",
            ("radgraph",),
            option("radgraph", "GRAPHS.json"),
            f"{option('radgraph')} and {option('predicted_radgraph')} with JSON, or "
            f"{option('radgraph', 'ARCHIVE.tar.gz')} for both",
            model="a RadGraph model (.tar.gz)",
            model_arguments=("radgraph_encoder",),
        ),
        SourceRecord(
            "chexbert",
            "metric_oracle.sources.embeddings:CheXbertSource",
            "an embedding",
            "embeddings",
            ("chexbert", "chexbert_ids"),
            option("chexbert", "FILE"),
            f"{option('chexbert')} and {option('predicted_chexbert')} with embeddings, or "
            f"{option('chexbert', 'chexbert.pth')} for both",
            model="the CheXbert model chexbert.pth",
            model_arguments=("vocabulary",),
        ),
        SourceRecord(
            "embedding",
            "metric_oracle.sources.embeddings:VectorSource",
            "an embedding",
            "embeddings",
            ("embeddings", "embedding_ids"),
            option("embeddings", "FILE"),
            f"{option('embeddings')} and {option('predicted_embeddings')}",
        ),
        SourceRecord(
            "labels",
            "metric_oracle.sources.labels:CheXbertLabelSource",
            "labels",
            "labels",
            ("chexbert_labels",),
            f"{option('chexbert_labels', 'FILE')} {option('uncertain', 'positive|negative|blank')}",
            f"{option('uncertain')} with {option('chexbert_labels')} and {option('predicted_chexbert_labels')}, or "
            f"with {option('chexbert', 'chexbert.pth')}",
            made_by="chexbert",
            settings=("uncertain",),
        ),
        SourceRecord(
            "label_table",
            "metric_oracle.sources.labels:LabelTableSource",
            "labels",
            "labels",
            ("labels",),
            option("labels", "FILE"),
            f"{option('labels')} and {option('predicted_labels')}",
        ),
        SourceRecord(
            "srr",
            "metric_oracle.sources.labels:LabelSetSource",
            "SRR labels",
            "SRR labels",
            ("srr_labels",),
            option("srr_labels", "FILE"),
            f"{option('srr_labels')} and {option('predicted_srr_labels')}",
        ),
        SourceRecord(
            "entities",
            "metric_oracle.sources.entities:EntitySource",
            "entities",
            "entities",
            ("entities",),
            option("entities", "FILE"),
            f"{option('entities')} and {option('predicted_entities')} with files, or "
            f"{option('entities', 'FOLDER')} (RaTE-NER's) for both",
            model="the folder of the model RaTE-NER",
            model_arguments=("entity_encoder",),
        ),
        SourceRecord(
            "sentences",
            "metric_oracle.sources.sentences:SentenceSource",
            "sentence vectors",
            "sentence vectors",
            ("sentences",),
            option("sentences", "FILE"),
            f"{option('sentences')} and {option('predicted_sentences')}",
        ),
        SourceRecord(
            "bertscore",
            "metric_oracle.sources.token_states:TokenStateSource",
            "token states",
            "token states",
            ("encoder",),
            option("encoder", "NAME|FOLDER"),
            option("encoder", "NAME|FOLDER"),
            made="encoded",
        ),
        SourceRecord("meteor_jar", "metric_oracle.encoders.meteor_jar:MeteorJar", "", "", (), made="pairs"),
        SourceRecord(
            "crepe",
            "metric_oracle.encoders.crepe:Crepe",
            "a checkpoint",
            "checkpoints",
            ("crepe", "crepe_config", "crepe_vocabulary"),
            option("crepe", "FOLDER"),
            option("crepe", "FOLDER"),
            made="pairs",
        ),
    )
}
# Sources that are joined to the reports on their ids.
ATTACHED = tuple(record for record in SOURCES.values() if record.made == "attached")


_GRAMS = ("Word", "Bigram", "Trigram", "Fourgram")


@dataclass(frozen=True)
class RepresentationRecord:
    """A representation: the form of reports that a metric reads from an index."""

    name: str  # name of the representation, and of its folder in an index
    home: str  # module and class, as `module:Class`, imported when needed; see `indexes.contract`
    source: SourceRecord | None = None  # that it is made from; None if made from texts or other representations alone
    parts: tuple[str, ...] = ()  # names of stored representations that it is made from; it then has no files of its own
    counts_corpus: bool = False  # whether document frequencies of the whole corpus, added up over shards, weight scores
    counts_queries: bool = False  # whether counts over all queries of a call weight scores, which then depend on these
    settings: tuple[str, ...] = ()  # names of the search options that change how queries are encoded

    @property
    def is_attached(self) -> bool:
        """Whether its source is joined to the reports; a report without an entry in the source has no score."""
        return self.source is not None and self.source.made == "attached"

    @property
    def is_encoded(self) -> bool:
        """Whether an encoder makes the representation from the texts, of an index and of each batch of queries."""
        return self.source is not None and self.source.made == "encoded"

    @property
    def is_pair(self) -> bool:
        """Whether a model reads both reports together, so that an index stores nothing and no bound exists."""
        return self.source is not None and self.source.made == "pairs"

    @property
    def is_of_texts(self) -> bool:
        """Whether it is made from the texts alone."""
        return self.source is None and not self.parts

    def load_class(self) -> Any:
        """Import and return the class that `home` names."""
        module, name = self.home.split(":")
        return getattr(import_module(module), name)


REPRESENTATIONS: dict[str, RepresentationRecord] = {
    record.name: record
    for record in (
        RepresentationRecord("ngrams", "metric_oracle.indexes.ngrams:NgramIndex"),
        RepresentationRecord("coco", "metric_oracle.indexes.ngrams:NgramIndex"),
        RepresentationRecord("words", "metric_oracle.indexes.ngrams:NgramIndex"),
        RepresentationRecord("temporal", "metric_oracle.indexes.temporal:KeywordIndex"),
        RepresentationRecord(
            "weighted", "metric_oracle.indexes.cider:WeightedIndex", parts=("coco",), counts_queries=True
        ),
        RepresentationRecord(
            "corpus_weighted", "metric_oracle.indexes.cider:CorpusWeightedIndex", parts=("coco",), counts_corpus=True
        ),
        RepresentationRecord("stems", "metric_oracle.indexes.stems:StemIndex", parts=("ngrams",)),
        RepresentationRecord("synonyms", "metric_oracle.indexes.stems:SynonymIndex", parts=("ngrams",)),
        *(
            RepresentationRecord(
                f"{kind.lower()}_sets", f"metric_oracle.indexes.gram_sets:{kind}Sets", parts=("words",)
            )
            for kind in _GRAMS
        ),
        RepresentationRecord("radgraph", "metric_oracle.indexes.radgraph:GraphIndex", SOURCES["radgraph"]),
        RepresentationRecord("radgraph_lower", "metric_oracle.indexes.radgraph:LowerCaseIndex", parts=("radgraph",)),
        RepresentationRecord("chexbert", "metric_oracle.indexes.embeddings:EmbeddingIndex", SOURCES["chexbert"]),
        RepresentationRecord("embedding", "metric_oracle.indexes.embeddings:EmbeddingIndex", SOURCES["embedding"]),
        RepresentationRecord("labels", "metric_oracle.indexes.labels:LabelIndex", SOURCES["labels"]),
        RepresentationRecord("agreement", "metric_oracle.indexes.agreement:AgreementIndex", parts=("labels",)),
        RepresentationRecord("agreement_5", "metric_oracle.indexes.agreement:FiveLabelIndex", parts=("labels",)),
        RepresentationRecord("label_table", "metric_oracle.indexes.labels:LabelTableIndex", SOURCES["label_table"]),
        RepresentationRecord("srr", "metric_oracle.indexes.labels:SrrIndex", SOURCES["srr"]),
        RepresentationRecord("entities", "metric_oracle.indexes.entities:EntityIndex", SOURCES["entities"]),
        RepresentationRecord("sentences", "metric_oracle.indexes.sentences:SentenceIndex", SOURCES["sentences"]),
        RepresentationRecord("srr_sets", "metric_oracle.indexes.labels:SrrSets", parts=("srr",)),
        RepresentationRecord("srr_agreement", "metric_oracle.indexes.agreement:AgreementIndex", parts=("srr",)),
        RepresentationRecord(
            "bertscore",
            "metric_oracle.indexes.bertscore:TokenStateIndex",
            SOURCES["bertscore"],
            settings=("idf", "rescale"),
        ),
        RepresentationRecord(
            "crg",
            "metric_oracle.indexes.crg:PositiveIndex",
            parts=("labels",),
            counts_queries=True,
            settings=("prevalence",),
        ),
        RepresentationRecord("meteor_jar", SOURCES["meteor_jar"].home, SOURCES["meteor_jar"]),
        RepresentationRecord("crepe", SOURCES["crepe"].home, SOURCES["crepe"]),
    )
}


@dataclass(frozen=True)
class Metric:
    """A metric or a variant of one.

    Attributes
    ----------
    name : str
        Name that users type: the metric and, after a colon, its variant.
    representation : str
        Name of the representation that it reads; "composite" for a composite.
    kernel : str
        Name of its folder under ``kernels/``.
    source : str
        Paper or published tool whose scores it reproduces.
    options : mapping
        Attributes of the kernel that distinguish its variants.
    higher_is_better : bool
        Direction; values are never inverted.
    fallback : bool
        Whether a query without any positive match gets the most frequent report, as Yu et al. do for RadGraph.
    cheap : bool
        Whether the exact scores of one query with all documents are fast to compute; a composite then computes all.
    composable : bool
        Whether it can be a term of a composite.
    is_symmetric : bool
        Whether the score is the same, bit for bit, if candidate and reference are exchanged.
    shown_in : tuple of str
        Commands that use it by default: "score", "study", "bench".
    tool : str
        Published program whose numbers it equals, with its version where it matters, in lower case and without blanks;
        it is part of the one-line signature. Empty if no program is the reference.
    title : str
        Name in tables for papers; by default `name`.
    column : str
        Name of the column in report_scores.csv of CXR-Report-Metric.
    """

    name: str
    representation: str
    kernel: str
    citation: str
    options: Mapping[str, object] = field(default_factory=lambda: MappingProxyType({}))
    higher_is_better: bool = True
    fallback: bool = False
    cheap: bool = True
    composable: bool = True
    is_symmetric: bool = False
    shown_in: tuple[str, ...] = ()
    tool: str = ""
    title: str = ""
    column: str = ""

    def __getstate__(self) -> dict[str, Any]:
        return {**vars(self), "options": dict(self.options)}  # a read-only view of a dict cannot be pickled

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state, options=MappingProxyType(state["options"]))

    @property
    def terms(self) -> "Mapping[str, Term]":
        """The terms of a composite by name of their metrics; empty for any other metric."""
        return self.options.get("terms", {})  # type: ignore[return-value]

    @property
    def representations(self) -> tuple[str, ...]:
        """Names of the stored representations that the metric reads from an index."""
        if self.terms:
            return tuple(dict.fromkeys(kind for term in self.terms.values() for kind in term.metric.representations))
        return REPRESENTATIONS[self.representation].parts or (self.representation,)

    @property
    def settings(self) -> tuple[str, ...]:
        """Names of the search options that change its scores."""
        kinds = self.representations if self.terms else (self.representation,)
        return tuple(name for kind in kinds for name in REPRESENTATIONS[kind].settings)

    @property
    def counts_corpus(self) -> bool:
        """Whether scores are weighted by document frequencies in a corpus, whatever the settings."""
        records = [term.metric for term in self.terms.values()] or [self]
        return any(REPRESENTATIONS[record.representation].counts_corpus for record in records)

    @property
    def needs_encoder(self) -> bool:
        """Whether an encoder must run on the queries."""
        return any(REPRESENTATIONS[kind].is_encoded for kind in self.representations)

    @property
    def is_searched(self) -> bool:
        """Whether an exact search exists: the best candidates of a corpus are found without scoring every pair."""
        return all(not REPRESENTATIONS[kind].is_pair for kind in self.representations)

    @property
    def recorded(self) -> dict[str, Any]:
        """The options as a signature records them."""
        if not self.terms:
            return dict(self.options)
        ordered: Any = self.options.get("ordered")
        if ordered is not None:  # of a sum, or of a search under conditions, which the signature has under "where"
            recorded = {name: self.terms[name].metric.recorded for name in ordered}
            return recorded if len(recorded) > 1 else recorded[ordered[0]]
        numbers = {name: {"mean": t.mean, "scale": t.scale, "weight": t.weight} for name, t in self.terms.items()}
        return {"terms": numbers, "intercept": self.options["intercept"]}


@dataclass(frozen=True)
class Term:
    """A term of a composite: a metric with the mean and scale that standardise it, and its weight."""

    metric: Metric
    mean: float
    scale: float
    weight: float


# Published programs of several metrics, and the commands that use most metrics by default.
_YU, _COCO_TOOL, _RADGRAPH_TOOL = "cxr-report-metric", "pycocoevalcap", "radgraph-0.1.18"
_USUAL = ("score", "study", "bench")


def _bleu(order: int, coco: bool) -> Metric:
    """Return the record of BLEU of an order, 1 to 4, of CXR-Report-Metric or, if `coco`, of pycocoevalcap."""
    options = MappingProxyType({"order": order, "coco": coco})
    citation = "Papineni et al., ACL 2002, as in "
    if coco:
        return Metric(f"bleu-{order}:coco", "coco", "bleu", citation + "pycocoevalcap", options, tool=_COCO_TOOL)
    shown = {2: _USUAL, 4: ("score",)}.get(order, ())
    return Metric(
        f"bleu-{order}",
        "ngrams",
        "bleu",
        citation + "CXR-Report-Metric (fast_bleu)",
        options,
        shown_in=shown,
        tool=_YU,
        title=f"BLEU-{order}",
        column="bleu_score" if order == 2 else "",
    )


def _radgraph(variant: str, families: tuple[int, int], citation: str, representation: str = "radgraph") -> Metric:
    """Return the record of RadGraph F1 or of a variant, such as ":rg_e".

    It is the mean F1 of two families of features, or the F1 of one; the second number is then -1.
    """
    name = "radgraph" + variant
    options = MappingProxyType({"family_a": families[0], "family_b": families[1]})
    if not variant:
        return Metric(
            name,
            representation,
            "radgraph",
            citation,
            options,
            fallback=True,
            is_symmetric=True,
            shown_in=_USUAL,
            tool=_YU,
            title="RadGraph F1",
            column="radgraph_combined",
        )
    shown, tool = (("score",), _RADGRAPH_TOOL) if representation == "radgraph" else ((), "radgraph-b5ab8d0")
    return Metric(
        name, representation, "radgraph", citation, options, fallback=True, is_symmetric=True, shown_in=shown, tool=tool
    )


def _labels(measure: str) -> Metric:
    """Return the record of a metric over tables of labels, "agreement" or "f1"."""
    what = {"agreement": "share of equal labels", "f1": "F1 of the positive labels"}[measure]
    citation = f"{what}, of a table with any columns; labels missing on either side are not compared"
    options, tool = MappingProxyType({"measure": measure}), "scikit-learn" if measure == "f1" else ""
    return Metric(f"labels:{measure}", "label_table", "labels", citation, options, tool=tool)


def _jaccard(order: int) -> Metric:
    """Return the record of the Jaccard coefficient of word n-grams of an order, 1 to 4."""
    citation = f"Jaccard, New Phytologist 1912, of the sets of word {order}-grams; words as for rouge-l"
    return Metric(f"jaccard:{order}", f"{_GRAMS[order - 1].lower()}_sets", "jaccard", citation)


def _ratescore(matrix: str) -> Metric:
    """Return the record of RaTEScore with one of its two matrices of weights, "long" or "short"."""
    name = "ratescore" if matrix == "long" else f"ratescore:{matrix}"
    citation = f"Zhao et al., EMNLP 2024, as in ratescore 0.6.0 ({matrix} weights), of given entities"
    options = MappingProxyType({"matrix": matrix})
    tool = "ratescore-0.6.0"
    return Metric(name, "entities", "ratescore", citation, options, cheap=False, composable=False, tool=tool)


def _bertscore(part: str) -> Metric:
    """Return the record of BERTScore's "precision", "recall" or "f1"."""
    name = "bertscore" if part == "f1" else f"bertscore:{part}"
    options = MappingProxyType({"part": ("precision", "recall", "f1").index(part)})
    citation = "Zhang et al., ICLR 2020, as in bert_score 0.3.13 without padding"
    whole = part == "f1"
    return Metric(
        name,
        "bertscore",
        "bertscore",
        citation,
        options,
        cheap=False,
        composable=whole,
        shown_in=_USUAL if whole else (),
        tool="bert-score-0.3.13",
        title="BERTScore" if whole else "",
        column="bertscore" if whole else "",
    )


_COCO = MappingProxyType({"coco": True})
_CIDER = "Vedantam et al., CVPR 2015, as in pycocoevalcap (its Cider is CIDEr-D)"
_METEOR = "Lavie and Agarwal, WMT 2007, as in nltk"
_PACKAGE = "Delbrouck et al., EMNLP Findings 2022, as in radgraph 0.1.18"
_LOWER = _PACKAGE + " since July 2026 (b5ab8d0), tokens lower-cased"
_AGREEMENT = "share of equal labels of {}, positive or not, as in FactMM-RAG (Sun et al., arXiv 2407.15268)"
_SRR = "labels of Delbrouck et al., ACL 2025 (SRR-BERT)"
_FIRST_FAMILY = MappingProxyType({"family_a": 0, "family_b": -1})
METRICS: dict[str, Metric] = {
    metric.name: metric
    for metric in (
        *(_bleu(order, coco) for coco in (False, True) for order in (1, 2, 3, 4)),
        Metric(
            "rouge-l",
            "words",
            "rouge_l",
            "Lin, ROUGE 2004, as in rouge-score without stemming",
            is_symmetric=True,
            shown_in=_USUAL,
            tool="rouge-score",
            title="ROUGE-L",
        ),
        Metric("rouge-l:coco", "ngrams", "rouge_l", "Lin, ROUGE 2004, as in pycocoevalcap", _COCO, tool=_COCO_TOOL),
        Metric(
            "cider-d",
            "weighted",
            "cider_d",
            _CIDER + ", document frequencies of the references",
            composable=False,
            tool=_COCO_TOOL,
        ),
        Metric(
            "cider-d:corpus",
            "corpus_weighted",
            "cider_d",
            _CIDER + ", document frequencies of the corpus",
            tool=_COCO_TOOL,
        ),
        Metric("meteor:nltk", "synonyms", "meteor", _METEOR + " with WordNet", tool="nltk"),
        Metric("meteor:nltk-stems", "stems", "meteor", _METEOR + " with a WordNet that knows no word", tool="nltk"),
        Metric(
            "meteor:1.5",
            "meteor_jar",
            "",
            "Denkowski and Lavie, WMT 2014, as in pycocoevalcap (its meteor-1.5.jar, which wants Java)",
            cheap=False,
            composable=False,
            tool="meteor-1.5.jar",
        ),
        *(_jaccard(order) for order in (1, 2, 3, 4)),
        Metric(
            "temporal",
            "temporal",
            "temporal",
            "Bannur et al., CVPR 2023; words as in RadEval 2.2.1",
            tool="radeval-2.2.1",
        ),
        _radgraph("", (0, 1), "Yu et al., Patterns 2023"),
        _radgraph(":rg_e", (0, -1), _PACKAGE + ", reward level simple"),
        _radgraph(":rg_er", (2, -1), _PACKAGE + ", reward level partial"),
        _radgraph(":rg_er-bar", (3, -1), _PACKAGE + ", reward level complete"),
        _radgraph(":rg_e-lower", (0, -1), _LOWER + ", reward level simple", "radgraph_lower"),
        _radgraph(":rg_er-lower", (2, -1), _LOWER + ", reward level partial", "radgraph_lower"),
        _radgraph(":rg_er-bar-lower", (3, -1), _LOWER + ", reward level complete", "radgraph_lower"),
        Metric(
            "chexbert",
            "chexbert",
            "cosine",
            "Smit et al., EMNLP 2020; cosine as in CXR-Report-Metric",
            cheap=False,
            shown_in=_USUAL,
            tool=_YU,
            title="CheXbert vector similarity",
            column="semb_score",
        ),
        Metric(
            "embedding", "embedding", "cosine", "cosine of the given report embeddings", cheap=False, composable=False
        ),
        Metric(
            "chexbert:labels",
            "labels",
            "chexbert_labels",
            "cosine of the 14-label vectors, Yu et al., Patterns 2023",
            shown_in=("score",),
        ),
        Metric("chexbert:agreement", "agreement", "chexbert_labels", _AGREEMENT.format("14"), tool="factmm-rag"),
        Metric("chexbert:agreement-5", "agreement_5", "chexbert_labels", _AGREEMENT.format("5"), tool="factmm-rag"),
        Metric(
            "srr-bert",
            "srr_sets",
            "radgraph",
            _SRR + ", F1 as scikit-learn's samples average",
            _FIRST_FAMILY,
            is_symmetric=True,
            tool="scikit-learn",
        ),
        Metric("srr-bert:agreement", "srr_agreement", "chexbert_labels", _SRR + ", share of equal labels"),
        *(_labels(measure) for measure in ("agreement", "f1")),
        *(_ratescore(matrix) for matrix in ("long", "short")),
        Metric(
            "sentences",
            "sentences",
            "sentences",
            "cosine Chamfer distance of given sentence vectors, mean of both ways; set distances as in SDR (Gulluk et "
            "al., arXiv 2606.00440)",
            higher_is_better=False,
            cheap=False,
            composable=False,
            tool="metric-oracle",
        ),
        Metric(
            "crg",
            "crg",
            "crg",
            "Hamamci et al., MIDL 2025, weights of the test set",
            composable=False,
            tool="ibrahimethemhamamci/crg",
        ),
        *(_bertscore(part) for part in ("f1", "precision", "recall")),
        Metric(
            "crepe",
            "crepe",
            "",
            "Cho et al., EMNLP 2025, each pair alone in float64",
            higher_is_better=False,
            cheap=False,
            composable=False,
            shown_in=("score",),
            tool="gihuncho/crepe",
        ),
    )
}
ALIASES = {"bleu": "bleu-2", "bleu:coco": "bleu-4:coco", "bertscore:f1": "bertscore", "radcliq:v1": "radcliq"}
# Spellings of metrics in tables and papers that differ from their names.
_SPELLED = {"radgraphf1": "radgraph", "chexbertvectorsimilarity": "chexbert", "chexbertsimilarity": "chexbert"}
COMPOSITE = "composite"  # name of metrics that are not in the registry, because their weights are in a file
LARGEST = 1e100  # limit of the numbers of a composite, so that its sums are finite
# Metrics that can be terms of a composite. CRG's weights depend on the queries; only F1 of BERTScore has a bound there.
COMPOSABLE = tuple(name for name, metric in METRICS.items() if metric.composable)


def list_metrics() -> list[Metric]:
    """List the metrics: name, files that it reads, better direction, and the publication whose numbers it equals.

    Returns
    -------
    list of Metric
        Each has a name, a direction, a citation and a representation.

    Examples
    --------
    >>> import metric_oracle as mo
    >>> mo.list_metrics()[0].name
    'bleu-1'
    """
    return list(METRICS.values())


def shown_in(command: str) -> tuple[str, ...]:
    """Return the names of the metrics that a command uses by default, in the order of the registry."""
    return tuple(name for name, metric in METRICS.items() if command in metric.shown_in)


def folded(name: str) -> str:
    """Return the letters and digits of a name in lower case, so that ``BLEU-2`` and ``bleu_2`` are equal."""
    return re.sub(r"[^a-z0-9]", "", name.lower())


def find_metric(name: str) -> Metric | None:
    """Return the record of a metric by its name, an alias, or a spelling of papers; None if it is unknown."""
    if name not in METRICS and name not in ALIASES:
        name = {**_SPELLED, **{folded(one): one for one in (*METRICS, *ALIASES)}}.get(folded(name), "")
    return METRICS.get(ALIASES.get(name, name))


def get_metric(metric: str | Metric, *, for_scores: bool = False) -> Metric:
    """Return the record of a metric by the name that a user typed; a record is returned unchanged.

    Raise InputError for an unknown name; with `for_scores` it may suggest metrics without a search, which only scores
    can use.
    """
    if isinstance(metric, Metric):
        return metric
    record = find_metric(metric)
    if record is None and metric == COMPOSITE:
        raise InputError(
            "weights",
            f"must be given for metric {COMPOSITE!r}",
            "none",
            f"Pass the file that {as_called('fit-composite')} wrote; an index is built for the metrics of its terms.",
        )
    if record is None:
        hint = _hint(metric, for_scores)
        raise InputError("metric", f"must be one of those that {as_called('metrics')} lists", repr(metric), hint)
    return record


def names_of(metrics: str | Sequence[str] | None) -> list[str] | None:
    """Return a list of metric names from a name, several names separated by commas, or a sequence; None from None."""
    if metrics is None:
        return None
    return [name.strip() for name in metrics.split(",")] if isinstance(metrics, str) else list(metrics)


def _hint(metric: str, for_scores: bool) -> str:
    """Return the next step of the error message for an unknown name; see `get_metric`."""
    if "," in metric:
        return "Name one metric."
    # A name such as "meteor" is only the first part of names; metrics without a search are suggested only for scores.
    near = [
        name
        for name, record in METRICS.items()
        if folded(name.partition(":")[0]) == folded(metric) and (record.is_searched or for_scores)
    ] or get_close_matches(metric.lower(), [*METRICS, *ALIASES], n=1, cutoff=0.7)
    return f"Did you mean {' or '.join(map(repr, near))}?" if near else "Choose one."


def check_searched(metric: Metric) -> None:
    """Raise InputError for a metric without an exact search."""
    if not metric.is_searched:
        # Reranking needs a model that counts errors, whose checkpoint the user gives.
        given = REPRESENTATIONS[metric.representation].source
        pool = f", or {as_called('rerank')} for the best of a pool" if given is not None and given.arguments else ""
        raise InputError(
            "metric",
            "must be one with an exact search",
            f"{metric.name!r}, whose model reads reference and candidate at once",
            f"Use {as_called('score')}{pool}.",
        )


def composite(
    name: str, terms: Mapping[str, tuple[float, float, float]], intercept: float, citation: str, **described: Any
) -> Metric:
    """Return the record of a linear composite that predicts errors: lower is better.

    Score = intercept + sum over terms, in their order, of weight (value - mean) / scale.

    `terms` has (mean, scale, weight) by the name of a metric, `citation` is the paper or file that they come from, and
    `described` are further attributes of the record. Raise InputError if a metric is unknown, occurs twice or cannot be
    a term, or a number is too large, a scale not above 0 or a weight 0.
    """
    records = [get_metric(part) for part in terms]
    parts = [record.name for record in records]
    foreign = [part for part in parts if part not in COMPOSABLE]
    if foreign or not parts or len(set(parts)) < len(parts):
        got = repr(foreign[0]) if foreign else "none" if not parts else "one twice"
        raise InputError("terms", f"must be among {', '.join(COMPOSABLE)}, each once", got, "Choose others.")
    numbers = list(terms.values())
    for part, (mean, scale, weight) in zip(parts, numbers, strict=True):
        sizes = scale, abs(weight), (1 + abs(mean)) / (scale or 1), abs(weight) / (scale or 1) * (1 + abs(mean))
        # A weight of 0 would make the search compute values that have no effect.
        if not (scale > 0 and weight != 0 and all(size < LARGEST for size in sizes)):
            raise InputError(
                "mean, scale and weight",
                f"must be below {LARGEST:g} (mean and weight also over scale), scale above 0 and weight other than 0",
                f"{mean!r}, {scale!r} and {weight!r} for {part!r}",
                "Fit it again, or leave the metric out.",
            )
    if not abs(intercept) < LARGEST:
        raise InputError("intercept", f"must be below {LARGEST:g}", repr(intercept), "Fit the composite again.")
    joined = {record.name: Term(record, *row) for record, row in zip(records, numbers, strict=True)}
    return Metric(
        name,
        COMPOSITE,
        COMPOSITE,
        citation,
        MappingProxyType({"terms": joined, "intercept": intercept}),
        higher_is_better=False,
        cheap=False,
        composable=False,
        **described,
    )


# The released parameters of Yu et al. (Patterns 2023; github.com/rajpurkarlab/CXR-Report-Metric): each part is
# standardised with the mean and the population standard deviation of ReXVal's pairs and enters a linear regression on
# the number of errors. Metric -> (mean, scale, weight).
_V0 = {
    "radgraph": (0.5398376019082272, 0.3018344440559102, -0.4796252644863446),
    "bertscore": (0.6312549595000001, 0.22466950746141123, -0.6762170542369337),
    "chexbert": (0.7716797866672277, 0.24750333805236252, -0.46366575161751994),
    "bleu-2": (0.4607372064809605, 0.30336670936092264, 0.2165861905287535),
}
# BLEU has a released weight of 4.3e-12 here, which moves no score by more than 2e-11: it is left out.
_V1 = {
    "radgraph": (0.5379231241355762, 0.3028258411486429, -0.37708368261038905),
    "bertscore": (0.6175725628125001, 0.22430938459304575, -0.37030009974480316),
    "chexbert": (0.7647942121140658, 0.2539439110169773, -0.25261621789593225),
}
# The preprint (medRxiv 2022.08.30.22279318) prints weights and intercept. Its normalisation is not published; that of
# v0 is ReXVal's own, which the preprint's composite was fitted on too.
_PREPRINT = {"radgraph": (*_V0["radgraph"][:2], -0.526), "bleu-2": (*_V0["bleu-2"][:2], -0.559)}
METRICS |= {
    metric.name: metric
    for metric in (
        composite(
            "radcliq",
            _V1,
            2.466552561323256e-10,
            "Yu et al., Patterns 2023",
            shown_in=_USUAL,
            tool=_YU,
            title="RadCliQ (predicted errors)",
            column="RadCliQ-v1",
        ),
        composite(
            "radcliq:v0",
            _V0,
            1.641666666666666,
            "Yu et al., released code, version 0",
            shown_in=("score",),
            tool=_YU,
            title="RadCliQ-v0 (predicted errors)",
            column="RadCliQ-v0",
        ),
        composite(
            "radcliq:preprint",
            _PREPRINT,
            1.642,
            "Yu et al., medRxiv 2022, normalised as version 0",
            title="RadCliQ of the preprint (predicted errors)",
        ),
    )
}
# Those with an exact search.
SEARCHED = tuple(name for name, metric in METRICS.items() if metric.is_searched)
