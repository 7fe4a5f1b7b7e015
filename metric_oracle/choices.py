"""Values that an argument or option may have. Nothing is imported here, so that the command line shows help at once."""

BACKENDS = ("auto", "cpu", "cuda", "reference")
DEVICES = ("cpu", "cuda")
RUNNERS = ("ray",)
STATES = ("float32", "float16")  # how token states are stored
UNCERTAIN = ("positive", "negative", "blank")  # how uncertain labels are counted
SECTIONS = ("impression", "findings", "findings+impression")
PROFILES = ("yu2023", "mit")  # rules that cut the sections out of MIMIC-CXR files
LEGACY = "legacy-yu2023"
INTERVALS = ("bca", "percentile", LEGACY)
IDENTICAL = ("once", "show")  # equal candidates of a survey
ORDERS = ("shared", "per-rater")
SHAPES = ("triplet", "n-tuple", "labeled-pair", "labeled-list", "trec")  # of pairs to train on
RESTRICTIONS = ("exclude", "min_score", "where")  # options that leave rows out of lists
STRATEGIES = ("top", "random")  # which candidates of a list are kept
# Endings of files of results, of tables and of figures.
RESULTS = (".parquet", ".csv", ".jsonl")
TABLES = (".md", ".tex", ".csv", ".parquet", ".jsonl")
FIGURES = (".png", ".svg", ".pdf")
# Numbers of resamples: with fewer, the ends of a 95 % interval are two or three draws; more take hours and no one sees.
FEWEST, MOST = 100, 1_000_000
