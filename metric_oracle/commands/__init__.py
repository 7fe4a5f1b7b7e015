"""The commands, a file for each family; `options` has every option once, `output` is what knows a terminal.

The list of `oracle --help` is here, so that it is shown without importing any family.
"""

from typing import NamedTuple


class Listed(NamedTuple):
    """A command in that list.

    Attributes
    ----------
    family : str
        Module of this package that has it.
    panel : str
    text : str
        The first paragraph of its own help.
    """

    family: str
    panel: str
    text: str


_BEGIN, _TOOLS, _SEARCH, _SCORES = "Begin here", "Tools", "Search", "Scores and tables"
_RADIOLOGISTS, _PAGES = "Radiologists", "Pages"
# In the order of the help.
COMMANDS = {
    "demo": Listed(
        "tools", _BEGIN,
        "Make a synthetic corpus, index it and run every oracle that is installed: the whole tool in a minute or two.",
    ),
    "example": Listed(
        "tools", _BEGIN, "Write a dozen small files of every family, and print the commands to try on them."
    ),
    "synth": Listed(
        "tools", _BEGIN,
        "Write a synthetic corpus of chest X-ray impressions with gold RadGraph graphs and CheXbert labels.",
    ),
    "annotate": Listed(
        "tools", _TOOLS, "Run models over reports and keep what they make: graphs, embeddings, labels or entities."
    ),
    "bench": Listed(
        "tools", _TOOLS,
        "Time the oracles on this machine, CPU beside GPU, after comparing their answers with the reference's.",
    ),
    "build-index": Listed(
        "search", _SEARCH, "Index a corpus of reports. A killed build resumes when the same command runs again."
    ),
    "retrieve": Listed("search", _SEARCH, "Find, for every test report, the k corpus reports that score best."),
    "rerank": Listed(
        "search", _SEARCH,
        "Find the reports with the fewest errors by CREPE, among those that another metric ranks first.",
    ),
    "merge": Listed(
        "search", _SEARCH, "Join the parts of a search of a set of shards: the answers of the whole, exactly."
    ),
    "verify": Listed(
        "search", _SEARCH,
        "Score a result file again with the reference scorer, and search a sample of its queries by brute force.",
    ),
    "info": Listed(
        "search", _SEARCH, "Show what an index holds: reports, representations, metrics, files, fingerprint."
    ),
    "metrics": Listed(
        "search", _SEARCH,
        "List the metrics: names, what each reads, the better direction, and whose numbers it equals.",
    ),
    "score": Listed("scoring", _SCORES, "Score a model's reports against the radiologists', joined on ids."),
    "table": Listed(
        "scoring", _SCORES,
        "Put the scores of several systems into one table: means, 95 % intervals, ranges, as in Yu et al.",
    ),
    "study": Listed(
        "scoring", _SCORES,
        "Run a whole study: every oracle, random retrieval (exact), the most frequent report and models, in one table.",
    ),
    "crg": Listed(
        "scoring", _SCORES, "Score predicted labels by CRG (Hamamci et al. 2025), of CheXbert or any other names."
    ),
    "f1-chexbert": Listed(
        "scoring", _SCORES,
        "Score predicted CheXbert labels by F1 of 14 and 5 labels, under every policy for uncertain ones.",
    ),
    "f1-srr-bert": Listed(
        "scoring", _SCORES, "Score predicted labels of SRR-BERT, a finding with a status each, by F1."
    ),
    "align": Listed(
        "ratings", _RADIOLOGISTS,
        "Measure how well metrics agree with each radiologist and with their mean: Kendall's tau-b and Spearman's rho.",
    ),
    "compare-metrics": Listed(
        "ratings", _RADIOLOGISTS,
        "Compare metrics by their agreement with radiologists on one or several rated sets, as papers on metrics do.",
    ),
    "failure-modes": Listed(
        "ratings", _RADIOLOGISTS,
        "Compare the errors that radiologists found in the reports of several metric-oracles, by error category.",
    ),
    "agreement": Listed(
        "ratings", _RADIOLOGISTS,
        "Measure how well radiologists agree with one another, by candidate type, and with themselves.",
    ),
    "fit-composite": Listed(
        "ratings", _RADIOLOGISTS,
        "Fit a composite that predicts the number of errors, as RadCliQ does; retrieve searches under it.",
    ),
    "explore": Listed(
        "pages", _PAGES,
        "Look at results in a browser: each test report with its oracles, their scores and what each metric saw.",
    ),
    "report": Listed(
        "pages", _PAGES,
        "Write results as one page for a browser, which loads nothing: scores, and the reports with what each metric "
        "saw.",
    ),
    "train-crepe": Listed(
        "training", _TOOLS,
        "Train CREPE on pairs of reports whose errors of six categories are counted; oracle synth --errors makes "
        "some.",
    ),
    "baseline": Listed(
        "baselines", _SEARCH,
        "Score what needs no oracle: chance, the most frequent report, a perfect prediction, the nearest image.",
    ),
    "survey": Listed(
        "survey", _RADIOLOGISTS, "Let radiologists count the errors of reports, as the survey of Yu et al. did."
    ),
}  # fmt: skip
