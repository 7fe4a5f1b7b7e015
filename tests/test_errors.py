"""Errors: their fields, the name of the outermost call, the terms of the command line, the way between processes."""

import pickle

import pytest

import metric_oracle as mo
from metric_oracle.base.errors import ExactnessError, InputError
from metric_oracle.base.option_types import Resamples
from metric_oracle.base.validation import public
from metric_oracle.commands.wording import Wording
from support import rule_of


def test_an_error_has_fields_and_is_one_line():
    error = InputError("k", "must be an int", "'5'", "Choose another number.")
    assert (error.argument, error.rule, error.value, error.step) == ("k", "must be an int", "'5'", error.step)
    assert str(error) == "k must be an int; got '5'. Choose another number."
    assert str(InputError("a.gz is cut short.", "Fetch it again.")) == "a.gz is cut short. Fetch it again."


@public
def inside(error: Exception) -> None:
    """Raise an error."""
    raise error


@public
def outside(error: Exception) -> None:
    """Call another public function that raises an error."""
    inside(error)


def test_the_outermost_call_names_an_error():
    for function in (inside, outside):
        with pytest.raises(InputError, match=rf"^{function.__name__}: a\.gz is cut short\. Fetch it again\.$"):
            function(InputError("a.gz is cut short.", "Fetch it again."))


FLAGS = {"k": "-k", "metrics": "--metric", "inner": "--inner", "text": "--with-text", "directions": "--direction"}
READS = {**FLAGS, "project": "--project", "section": "--section", "text_column": "--text-column"}


@pytest.mark.parametrize(
    ("python", "flags", "typed"),
    [
        ("`k`", FLAGS, "-k"),
        ("`k=5`", FLAGS, "-k 5"),
        ("`out=FILE.csv`", FLAGS, "--out FILE.csv"),
        ("`metrics='bleu,rouge-l'`", FLAGS, "--metric bleu,rouge-l"),
        ("`inner=True`", FLAGS, "--inner"),
        ("`text=False`", FLAGS, "--no-with-text"),
        ("`id_column='a b'`", {"id_column": "--id-column"}, "--id-column 'a b'"),
        ("`directions={'a': 'higher'}`", FLAGS, "--direction a=higher"),
        ("`leave_out={NAME: REASON}`", FLAGS, "--leave-out NAME=REASON"),
        ("`mo.SearchOptions(idf='corpus')`", FLAGS, "--idf corpus"),
        ("`options=mo.SurveyOptions(unequal=True)`", FLAGS, "--unequal"),
        ("`mo.build_index`", FLAGS, "oracle build-index"),
        ("`mo.list_metrics`", FLAGS, "oracle metrics"),
        ("`mo.create_survey`", FLAGS, "oracle survey create"),
        ("`mo.expectation`", FLAGS, "oracle baseline expectation"),
        ("`mo.read_foreign`", FLAGS, "oracle table --foreign NAME=FILE"),
        ("[`score_crg`][metric_oracle.score_crg]", FLAGS, "oracle crg"),
        ("``a``", FLAGS, "a"),
        ("`mo.reports(..., mo.Read(section='findings'))`", READS, "--section findings"),
        ("`mo.reports(..., mo.Read(split=NAME))`", READS, "--split NAME by oracle reports NAME FILE"),
        ("`mo.reports(..., radgraph=GRAPHS.json)`", {}, "--radgraph GRAPHS.json"),
        ("`mo.reports(..., encoder=NAME|FOLDER)`", FLAGS, "--encoder NAME|FOLDER"),
        ("`mo.reports(..., layer=N)`", READS, "--layer N in [encoders.NAME] of oracle.toml"),
        (
            "`mo.reports(..., chexbert_labels=FILE, uncertain=positive|negative)`",
            {},
            "--chexbert-labels FILE --uncertain positive|negative",
        ),
        (
            "`mo.reports(predictions, mo.Read(section='findings'))`",
            READS,
            "--section findings by oracle reports NAME FILE",
        ),
        (
            "`mo.reports('my file.csv', mo.Read(id_column='a', text_column=NAME))`",
            READS,
            "oracle reports NAME 'my file.csv' --id-column a --text-column NAME",
        ),
        ("`not python`", FLAGS, "not python"),
        ("`queries`", {"queries": "QUERIES"}, "QUERIES"),
        ("`sets={NAME: RATINGS}`", {"sets": "NAME=FILE"}, "NAME=RATINGS"),
        ("`text`", {"text": "--with-text/--no-text"}, "--with-text"),
        ("`text=False`", {"text": "--with-text/--no-text"}, "--no-text"),
    ],
)
def test_what_stands_in_backticks_is_written_as_it_is_typed(python, flags, typed):
    assert Wording(flags).text(f"Pass {python}, or {python}.") == f"Pass {typed}, or {typed}."
    error = InputError("Nothing is known.", f"Pass {python}.")
    assert str(error) == f"Nothing is known. Pass {python}."
    assert Wording(flags).message(error) == f"oracle: Nothing is known. Pass {typed}."


def test_the_arguments_of_a_rule_are_options():
    error = InputError("metrics and inner", "must be given with `k`", None, "Give `k=1`.")
    assert str(error) == "metrics and inner must be given with `k`; got None. Give `k=1`."
    assert Wording(FLAGS).message(error) == "oracle: --metric and --inner must be given with -k; got none. Give -k 1."
    of_value = InputError("queries", "must be given with `queries`", None, "Give `k=1`.")
    assert Wording({"queries": "QUERIES"}).message(of_value).startswith("oracle: queries must be given with QUERIES; ")


def test_what_takes_read_itself_advises_it_alone(tmp_path):
    (tmp_path / "t.csv").write_text("nr,typed,other\n1,One text.,Two texts.\n")
    for read in (mo.read_reports, mo.read_predictions, mo.read_samples):
        with pytest.raises(InputError, match=r"[^(]`mo\.Read\(id_column="):
            read(tmp_path / "t.csv")
    with pytest.raises(InputError, match=r"`mo\.reports\(\.\.\., mo\.Read\(id_column="):
        mo.build_index(tmp_path / "t.csv", tmp_path / "INDEX")


def test_fields_survive_the_way_between_processes():
    errors = [
        InputError("a.gz is cut short.", "Pass `inner=True`."),
        ExactnessError("k", "must be an int", "'5'", "Choose one."),
        InputError("a.gz is cut short."),
    ]
    for error in errors:
        back = pickle.loads(pickle.dumps(error))
        assert type(back) is type(error)
        assert vars(back) == vars(error)
        assert str(back) == str(error)


def test_shared_code_is_not_taken_for_another_function(tmp_path):
    index = mo.build_index(["a b", "b c"], tmp_path / "I", metrics="bleu")
    beside = {"metric": "bleu", "options": mo.SearchOptions(idf="off")}
    for name, call in {
        "retrieve": lambda: mo.retrieve(index, ["a"], **beside),
        "baseline": lambda: mo.baseline(index, ["a"], "random", **beside),
        "expectation": lambda: mo.expectation(index, ["a"], **beside),
    }.items():
        with pytest.raises(InputError, match=rf"^{name}: idf must be left out for metric 'bleu-2'; got a value\."):
            call()
    results = mo.retrieve(index, ["a"], "bleu")
    for name, call in {
        "retrieve": lambda given: mo.retrieve(index, given, "bleu"),
        "baseline": lambda given: mo.baseline(index, given, "identity", "bleu"),
        "verify": lambda given: mo.verify(index, results, given),
        "score": lambda given: mo.score(given, ["a"], "bleu"),
        "compute": lambda given: mo.compute(references=given, predictions=["a"], metrics="bleu"),
        r"AttachedReports\.load": lambda given: mo.reports(given).load(),
        "build_index": lambda given: mo.build_index(given, tmp_path / "J"),
    }.items():
        with pytest.raises(
            InputError, match=rf"^{name}: the reports in memory must be text or None; got int at position"
        ):
            call([1])
    rewarded = mo.reward("bleu")
    with pytest.raises(
        InputError,
        match=r"^reference must be texts, or lists of chat messages .* each; got neither at position \d+\. ",
    ):
        rewarded(completions=["a"], reference=[1])
    scores = {"a": mo.score(["a", "b"], ["a", "c"], "bleu")}
    with pytest.raises(InputError, match=rf"^compare: resamples {rule_of(Resamples)}; got 7\. The def"):
        mo.compare(scores, resamples=7)


def test_commands_are_named_as_they_are_typed(fails, tmp_path):
    index, test, scores = tmp_path / "I", tmp_path / "t.csv", tmp_path / "s.csv"
    test.write_text("study_id,report\n1,a b\n2,b c\n")
    mo.build_index(test, index, metrics="bleu")
    mo.score(test, test, "bleu").write(scores)
    what = "--metric must be one of bleu-1, .* holds\\); got 'radgraph'\\. Build an index with"
    for command in ("retrieve", "baseline random", "study"):
        fails(*command.split(), index, test, "-m", "radgraph", match=rf"{command}: {what}")
    fails("table", f"a={scores}", "--resamples", 7, match=rf"table: --resamples {rule_of(Resamples)}; got 7")
    fails(
        "table", f"a={scores}", "--random", "b", match=r"table: --random must name systems of the table, 'a'; got 'b'"
    )
    weights = tmp_path / "w.json"
    weights.write_text("{}")
    for command in ("retrieve", "baseline identity"):
        match = (
            "retrieve: --weights must be a JSON file that oracle fit-composite writes"
            if command == "retrieve"
            else ("oracle baseline identity: no such option --weights")
        )
        fails(*command.split(), index, test, "-m", "composite", "--weights", weights, match=match)
