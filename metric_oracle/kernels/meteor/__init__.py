"""METEOR: words that two reports share, as equal words, equal stems or synonyms, and into how few pieces they fall."""

from metric_oracle.kernels.bleu import NGRAMS
from metric_oracle.records import Metric, RepresentationRecord, SourceRecord

_STEMS = RepresentationRecord("stems", "metric_oracle.indexes.stems:StemIndex", parts=(NGRAMS,))
_SYNONYMS = RepresentationRecord("synonyms", "metric_oracle.indexes.stems:SynonymIndex", parts=(NGRAMS,))
_JAR = SourceRecord("meteor_jar", "metric_oracle.encoders.meteor_jar:MeteorJar", "", "", (), made="pairs")
_CITATION = "Lavie and Agarwal, WMT 2007, as in nltk with "
METRICS = (
    Metric("meteor:nltk", _SYNONYMS, "meteor", _CITATION + "WordNet", tool="nltk", title="METEOR (NLTK)"),
    Metric(
        "meteor:nltk-stems",
        _STEMS,
        "meteor",
        _CITATION + "a WordNet that knows no word",
        tool="nltk",
        title="METEOR (NLTK, stems)",
    ),
    Metric(
        "meteor:1.5",
        RepresentationRecord(_JAR.name, _JAR.home, _JAR),
        "",
        "Denkowski and Lavie, WMT 2014, as in pycocoevalcap (its meteor-1.5.jar, which wants Java)",
        cheap=False,
        composable=False,
        tool="meteor-1.5.jar",
        title="METEOR 1.5",
    ),
)
