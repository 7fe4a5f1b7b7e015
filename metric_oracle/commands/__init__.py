"""The commands of the command line, one module for each family of commands.

`options` defines every option, `output` writes results, notes and progress. The list of commands that `oracle --help`
shows is defined here, so that no family is imported to show it.
"""

from typing import NamedTuple


class Listed(NamedTuple):
    """A command or group of commands, as the list of `oracle --help` shows it."""

    family: str  # module of this package that defines the command
    panel: str  # heading under which it is listed
    text: str  # description: the first paragraph of the command's own help


_BEGIN, _SEARCH, _SCORES, _TABLES = "Begin here", "Search", "Scores", "Tables"
_TRAINING, _RADIOLOGISTS, _PAGES, _TOOLS = "Training", "Radiologists", "Pages", "Tools"
# In the order of the help: the families as people meet them.
COMMANDS = {
    "demo": Listed(
        "tools",
        _BEGIN,
        "Show the whole tool in some minutes: make a synthetic corpus, index it, search it under every metric.",
    ),
    "example": Listed(
        "tools",
        _BEGIN,
        "Write small example files (reports, graphs, labels, ratings), and print commands to try on them.",
    ),
    "synth": Listed(
        "tools",
        _BEGIN,
        "Write a synthetic corpus of chest X-ray impressions, with their true RadGraph graphs and CheXbert labels.",
    ),
    "reports": Listed(
        "naming",
        _BEGIN,
        "Give a file of reports a name in oracle.toml, and say how it is read. Without arguments, list all names.",
    ),
    "build-index": Listed("search", _SEARCH, "Build the index of a corpus of reports, which searches read."),
    "retrieve": Listed(
        "search", _SEARCH, "Find, for every test report, the k reports of the corpus that score best under a metric."
    ),
    "baseline": Listed(
        "baselines",
        _SEARCH,
        "Score baselines: random reports, the most frequent report, a perfect prediction, the nearest image.",
    ),
    "rerank": Listed(
        "search",
        _SEARCH,
        "Find the best reports under a judge, such as CREPE or GREEN, among the best reports under other metrics.",
    ),
    "pool": Listed(
        "search", _SEARCH, "Pair test reports with the reports of their pools, for a judge that runs elsewhere."
    ),
    "merge": Listed(
        "search", _SEARCH, "Join the results of retrieve --part or mine --part into the result of the whole search."
    ),
    "verify": Listed(
        "search",
        _SEARCH,
        "Check a result file: score it again with the reference scorer, and search a sample by brute force.",
    ),
    "info": Listed(
        "search", _SEARCH, "Show what an index contains: reports, representations, metrics, files and fingerprint."
    ),
    "metrics": Listed(
        "search",
        _SEARCH,
        "List the metrics: name, files that it reads, better direction, and the publication whose numbers it equals.",
    ),
    "score": Listed(
        "scoring",
        _SCORES,
        "Score a model's reports against the radiologists' reports of the same studies, joined on ids.",
    ),
    "crg": Listed("scoring", _SCORES, "Score predicted labels of any kind with CRG (Hamamci et al. 2025)."),
    "f1-chexbert": Listed(
        "scoring",
        _SCORES,
        "Score predicted CheXbert labels with F1 over 14 and 5 labels, under each convention for uncertain labels.",
    ),
    "f1-srr-bert": Listed("scoring", _SCORES, "Score predicted SRR-BERT labels (findings with their status) with F1."),
    "consensus": Listed(
        "samples",
        _SCORES,
        "Choose, of several reports of a model for each study, the one that agrees best with the others.",
    ),
    "best-of": Listed(
        "samples",
        _SCORES,
        "Measure how good the best of n reports of a model is expected to be, and how near selectors come to it.",
    ),
    "table": Listed(
        "scoring",
        _TABLES,
        "Compare the scores of several systems in one table: means, 95 % intervals and ranges, as in Yu et al.",
    ),
    "study": Listed(
        "scoring",
        _TABLES,
        "Run a complete study: compare the oracle of every metric, baselines and models in one table.",
    ),
    "overlap": Listed(
        "copies",
        _TABLES,
        "Measure what sets of reports copy from a training corpus, compared with the human test reports.",
    ),
    "mine": Listed(
        "mining",
        _TRAINING,
        "Find, for every report of an index, the best-scoring other reports of this index, as pairs to train on.",
    ),
    "pairs": Listed(
        "mining",
        _TRAINING,
        "Write mined pairs in the shape that a training library reads: triplets, n-tuples, labelled pairs or lists.",
    ),
    "train-crepe": Listed(
        "training", _TRAINING, "Train CREPE on pairs of reports whose errors were counted in six categories."
    ),
    "align": Listed(
        "ratings",
        _RADIOLOGISTS,
        "Measure how well metrics agree with the errors that radiologists counted: Kendall's tau-b and Spearman's rho.",
    ),
    "compare-metrics": Listed(
        "ratings",
        _RADIOLOGISTS,
        "Compare metrics by their agreement with radiologists, on one or several rated sets, in the tables of a paper.",
    ),
    "failure-modes": Listed(
        "ratings",
        _RADIOLOGISTS,
        "Compare the errors that radiologists counted in the reports of several metric-oracles, by error category.",
    ),
    "agreement": Listed(
        "ratings",
        _RADIOLOGISTS,
        "Measure how well radiologists agree with one another, and with themselves where they rated a study twice.",
    ),
    "fit-composite": Listed(
        "ratings",
        _RADIOLOGISTS,
        "Fit a weighted sum of metrics that predicts the number of errors in a report, as RadCliQ does.",
    ),
    "survey": Listed(
        "survey",
        _RADIOLOGISTS,
        "Let radiologists count the errors in reports, on web pages, as in the survey of Yu et al.",
    ),
    "explore": Listed(
        "pages",
        _PAGES,
        "Explore results in a browser: test reports, the reports found for them, and what their scores are based on.",
    ),
    "report": Listed(
        "pages",
        _PAGES,
        "Write results as one HTML page that works offline: scores, reports, and what the scores are based on.",
    ),
    "annotate": Listed(
        "tools",
        _TOOLS,
        "Run a model over reports and write its output to a file: graphs, embeddings, labels or entities.",
    ),
    "bench": Listed(
        "tools", _TOOLS, "Measure how fast searches are on this machine, on CPU and GPU, after checking their results."
    ),
}
