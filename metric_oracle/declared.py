"""What the declaration of an option says beside its type, its range and its text.

An option is declared once, at the parameter of a public function or at the field of a public options object. The
command line, the checks of both doors, the help of Python and the reference pages are made from that declaration:

    k: Annotated[Positive, Doc("Number of best reports to return for each test report."), Flag("-k", "--top-k")] = 1

In a text, other arguments stand in backticks with their names in Python; the command line shows them as its options.
"""

from typing import Final

# Panels of the help, in its order.
OUTPUT, SEARCH, ROWS = "Options", "Metric and search", "Rows, intervals and tests"
PREDICTED, FILES, BERTSCORE, READING = "The predictions", "Files and models", "BERTScore", "How to read the reports"
PANELS = (OUTPUT, SEARCH, ROWS, PREDICTED, FILES, BERTSCORE, READING)


class Flag:
    """How the command line shows an option: what its name and its type in Python do not say."""

    def __init__(self, *names: str, metavar: str = "", panel: str = "") -> None:
        self.names = names  # such as "-k", "--top-k"; empty for "--" and the name in Python
        self.metavar = metavar  # name of the value, such as "COLUMN"; empty for the usual one of the type
        self.panel = panel  # heading under which the help lists it; empty for that of the command


IN_PYTHON: Final = Flag("")  # of a parameter that the command line does not have
