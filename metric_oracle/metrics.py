"""The registry: one record for each metric and variant.

Adding a metric is one record here, one folder under ``kernels/``, one file under ``indexes/`` (or none, where it reuses
a representation) and one row in the shared tests.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from difflib import get_close_matches
from types import MappingProxyType

from metric_oracle.errors import InputError


@dataclass(frozen=True)
class Metric:
    """What the engine knows of a metric.

    Attributes
    ----------
    name : str
        As typed: the metric, and after a colon its variant.
    representation : str
        Which part of an index it reads (a folder of the index and a file under ``indexes/``).
    kernel : str
        Folder under ``kernels/``.
    options : mapping
        Keyword arguments of the kernel.
    source : str
        Paper or published tool whose numbers it equals.
    higher_is_better : bool
        Direction; values are never inverted.
    fallback : bool
        Whether a query without any positive match gets the most frequent report, as Yu et al. do for RadGraph.
    extra : str or None
        Extra of the distribution that it needs.
    parts : mapping
        Of a composite: part -> representation that it reads.
    """

    name: str
    representation: str
    kernel: str
    source: str
    options: Mapping[str, object] = field(default_factory=lambda: MappingProxyType({}))
    higher_is_better: bool = True
    fallback: bool = False
    extra: str | None = None
    parts: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))

    @property
    def representations(self) -> tuple[str, ...]:
        """Parts of an index that are read."""
        return tuple(self.parts.values()) or (self.representation,)


def _bleu(order: int, coco: bool) -> Metric:
    tool = "pycocoevalcap" if coco else "CXR-Report-Metric (fast_bleu)"
    name = f"bleu-{order}:coco" if coco else f"bleu-{order}"
    options = MappingProxyType({"order": order, "coco": coco})
    return Metric(name, "ngrams", "bleu", f"Papineni et al., ACL 2002, as in {tool}", options)


def _radgraph(variant: str, families: tuple[int, int], source: str) -> Metric:
    name = "radgraph" + variant
    options = MappingProxyType({"family_a": families[0], "family_b": families[1]})
    return Metric(name, "radgraph", "radgraph", source, options, fallback=True)


def _bertscore(part: str) -> Metric:
    name = "bertscore" if part == "f1" else f"bertscore:{part}"
    options = MappingProxyType({"part": ("precision", "recall", "f1").index(part)})
    source = "Zhang et al., ICLR 2020, as in bert_score 0.3.13 without padding"
    return Metric(name, "bertscore", "bertscore", source, options, extra="encoders")


def _radcliq(variant: str, parts: tuple[str, ...], source: str) -> Metric:
    homes = {"radgraph": "radgraph", "bertscore": "bertscore", "chexbert": "chexbert", "bleu": "ngrams"}
    return Metric(
        "radcliq" if variant == "v1" else f"radcliq:{variant}",
        "radcliq",
        "radcliq",
        source,
        MappingProxyType({"variant": variant}),
        higher_is_better=False,
        extra="encoders",
        parts=MappingProxyType({part: homes[part] for part in parts}),
    )


_PACKAGE = "Delbrouck et al., EMNLP Findings 2022, as in radgraph 0.1.18"
METRICS: dict[str, Metric] = {
    metric.name: metric
    for metric in (
        *(_bleu(order, coco) for coco in (False, True) for order in (1, 2, 3, 4)),
        Metric("rouge-l", "words", "rouge_l", "Lin, ROUGE 2004, as in rouge-score without stemming"),
        _radgraph("", (0, 1), "Yu et al., Patterns 2023"),
        _radgraph(":rg_e", (0, -1), _PACKAGE + ", reward level simple"),
        _radgraph(":rg_er", (2, -1), _PACKAGE + ", reward level partial"),
        _radgraph(":rg_er-bar", (3, -1), _PACKAGE + ", reward level complete"),
        Metric(
            "chexbert", "chexbert", "chexbert", "Smit et al., EMNLP 2020; cosine as in CXR-Report-Metric", extra="cpu"
        ),
        Metric(
            "chexbert:labels", "labels", "chexbert_labels", "cosine of the 14-label vectors, Yu et al., Patterns 2023"
        ),
        *(_bertscore(part) for part in ("f1", "precision", "recall")),
        _radcliq("v1", ("radgraph", "bertscore", "chexbert"), "Yu et al., Patterns 2023"),
        _radcliq("v0", ("radgraph", "bertscore", "chexbert", "bleu"), "Yu et al., released code, version 0"),
        _radcliq("preprint", ("radgraph", "bleu"), "Yu et al., medRxiv 2022, normalised as version 0"),
    )
}
ALIASES = {"bleu": "bleu-2", "bleu:coco": "bleu-4:coco", "bertscore:f1": "bertscore", "radcliq:v1": "radcliq"}
BACKENDS = ("auto", "cpu", "cuda", "reference")


def get_metric(name: str, function: str = "retrieve") -> Metric:
    """Return the record of a metric by the name that people type."""
    metric = METRICS.get(ALIASES.get(name, name))
    if metric is None:
        near = get_close_matches(name, [*METRICS, *ALIASES], n=1)
        hint = f"Did you mean {near[0]!r}?" if near else "Choose one of these."
        msg = f"{function}: metric must be one of {', '.join([*ALIASES, *METRICS])}; got {name!r}. {hint}"
        raise InputError(msg)
    return metric
