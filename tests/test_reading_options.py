"""Every command that reads reports can be told how: its own column names, in one call, for one file or several."""

import json

import pytest

import metric_oracle as mo
from support import assert_refused, write

TEXTS = {f"a{i}": f"Finding {i} of the left lung is stable." for i in range(6)}
MADE = {study: f"A finding of the left lung {study}." for study in TEXTS}


@pytest.fixture
def own(tmp_path):
    """Return a folder of files whose columns have no usual names, three columns each, and an index of one."""
    for name, texts, header in (
        ("refs", TEXTS, ("nr", "typed", "n")),
        ("a", MADE, ("key", "made", "n")),
        ("b", dict(reversed(MADE.items())), ("key", "made", "n")),
        ("c", MADE, ("key", "drawn", "n")),
    ):
        write(tmp_path / f"{name}.csv", [(*row, 1) for row in texts.items()], header)
    mo.build_index(mo.reports(tmp_path / "refs.csv", mo.Read(id_column="nr", text_column="typed")), tmp_path / "I")
    write(tmp_path / "good.csv", TEXTS)
    write(tmp_path / "made.csv", MADE)
    return tmp_path


REFERENCES = ("--id-column", "nr", "--text-column", "typed")
MODELS = ("--model-id-column", "key", "--model-text-column", "made")


def test_three_models_need_two_options(own, oracle):
    """One value is for all models; NAME=VALUE is for one, and before it."""
    named = [f"--model={name.upper()}={own / name}.csv" for name in "ab"]
    code, out, _ = oracle("study", own / "I", own / "refs.csv", *REFERENCES, *named, *MODELS, "-m", "rouge-l")
    means = {r["system"]: r["mean"] for r in map(json.loads, out.splitlines()) if not r["versus"]}
    wanted = mo.score(own / "good.csv", own / "made.csv", "rouge-l").mean()["rouge-l"]
    assert (code, means["A"], means["B"]) == (0, wanted, wanted)
    more = (f"--model=C={own / 'c.csv'}", "--model-text-column", "C=drawn")
    code, out, _ = oracle("study", own / "I", own / "refs.csv", *REFERENCES, *named, *MODELS, *more, "-m", "rouge-l")
    assert (code, json.loads(out.splitlines()[2])["mean"]) == (0, wanted)


def test_overlap_and_surveys_take_any_columns(own, oracle):
    code, out, _ = oracle("overlap", own / "I", own / "a.csv", *MODELS, "--references", own / "refs.csv", *REFERENCES)
    assert code == 0
    wanted = oracle("overlap", own / "I", f"a={own / 'made.csv'}", "--references", own / "good.csv")[1]
    assert out == wanted
    survey = ("--raters", "ann", "--studies", 3)
    code, *_ = oracle(
        "survey", "create", own / "refs.csv", *REFERENCES, "--candidates", f"A={own / 'a.csv'}", *MODELS, *survey,
        "--out", own / "S",
    )  # fmt: skip
    assert code == 0
    oracle("survey", "create", own / "good.csv", "--candidates", f"A={own / 'made.csv'}", *survey, "--out", own / "W")
    shown, wanted = (json.loads((own / name / "survey.json").read_text())["studies"] for name in "SW")
    assert shown == wanted


@pytest.mark.parametrize(
    ("command", "options"),
    [
        ("score {refs} {a}", "--id-column --text-column --predicted-id-column --predicted-text-column"),
        ("study {I} {refs} --model A={a}", "--id-column --text-column --model-id-column --model-text-column"),
        ("overlap {I} {a} --references {refs}", "--id-column --text-column --model-id-column --model-text-column"),
        (
            "survey create {refs} --candidates A={a} --raters ann --out {S}",
            "--id-column --text-column --model-id-column --model-text-column",
        ),
        ("best-of {a} {refs}", "--id-column --text-column --predicted-id-column --predicted-text-column"),
    ],
)
def test_one_message_gives_all_options(own, oracle, command, options):
    files = {name: own / f"{name}.csv" for name in ("refs", "a")} | {name: own / name for name in "IS"}
    asked = " ".join(f"{flag} NAME" for flag in options.split())
    match = rf".*refs\.csv has no .*, and .*a\.csv has no .*\. Pass {asked}; columns of .*: 'nr', 'typed', 'n'; .*'key'"
    assert_refused(oracle(*command.format(**files).split()), match, notes="(reports|test reports|references): ")
    values = iter(["nr", "typed", "key", "made"])
    told = [word for flag in options.split() for word in (flag, next(values))]
    more = {"survey": ("--studies", 3), "best-of": ("-m", "rouge-l"), "study": ("-m", "rouge-l")}
    assert oracle(*command.format(**files).split(), *told, *more.get(command.split()[0], ()))[0] == 0


def test_options_of_models_are_checked(own, oracle):
    study = ("study", own / "I", own / "good.csv", f"--model=A={own / 'made.csv'}")
    for options, match in (
        (
            ("--model-id-column", "B=key"),
            "study: --model-id-column must name a model; got .B., which has no file. Add its file, or choose one of A.",
        ),
        (
            ("--model-id-column", "key", "--model-id-column", "nr"),
            "study: --model-id-column must be given once for all models; got 2 values without NAME=. Write NAME=VALUE",
        ),
        ((f"--model=A={own / 'a.csv'}",), "study: --model must have each name once; got 'A' twice"),
    ):  # fmt: skip
        assert_refused(oracle(*study, *options), match)
    match = r"overlap: two files have the name 'a'\. Write NAME=FILE with another name\."
    assert_refused(oracle("overlap", own / "I", own / "a.csv", f"a={own / 'b.csv'}"), match)


def test_options_of_human_reports_want_these_reports(own, oracle):
    """Without them, --section would be without effect; those of text files apply to the sets, too."""
    given = ("overlap", own / "I", f"a={own / 'made.csv'}")
    match = (
        r"overlap: --references must be given with --section, --id-column; got none\. Add --references, whose reports "
        r"they belong to; the sets have --model-section, --model-id-column\.$"
    )
    assert_refused(oracle(*given, "--section", "findings", "--id-column", "nr"), match)
    for more in (("--profile", "mit"), ("--split", "test"), ("--split-file", own / "good.csv")):
        match = rf"overlap: --references must be given with {more[0]}; got none\. Add --references, whose reports they"
        assert_refused(oracle(*given, *more), match)
    assert oracle(*given, "--encoding", "utf-8", "--separator", ",") == oracle(*given)
