"""Errors: their fields, the function and the terms of the outermost call, and the way between processes."""

import pickle

import pytest

import metric_oracle as mo
from metric_oracle.base.errors import ExactnessError, InputError, called, in_terms_of_caller, option


def caught(error, *called_functions):
    """Return the error after it went through calls of functions, the innermost first."""
    for function, keywords in called_functions:
        with pytest.raises(type(error)), called(function, keywords):
            raise error
    return error


def test_an_error_has_fields_and_is_one_line():
    error = InputError("k", "must be an int", "'5'", "Choose another number.")
    assert (error.argument, error.rule, error.value, error.step) == ("k", "must be an int", "'5'", error.step)
    assert str(error) == "k must be an int; got '5'. Choose another number."
    assert str(InputError("a.gz is cut short.", "Fetch it again.")) == "a.gz is cut short. Fetch it again."


def test_the_outermost_call_names_an_error():
    error = InputError("a.gz is cut short.", "Fetch it again.")
    assert str(caught(error, ("retrieve", None))) == "retrieve: a.gz is cut short. Fetch it again."
    assert str(caught(error, ("study", None))) == "study: a.gz is cut short. Fetch it again."


@pytest.mark.parametrize(
    ("given", "keywords", "advice"),
    [
        (option("text_column", "NAME"), None, "--text-column NAME"),
        (option("text_column", "NAME"), ["text_column"], "text_column=NAME"),
        (option("predicted_text_column", "NAME"), ["text_column"], "text_column=NAME"),
        (option("metric"), ["metrics"], "metrics"),
        (option("metric", "bleu"), [], "metric=bleu"),
        (option("section"), None, "--section"),
        (option("inner", True), None, "--inner"),
        (option("inner", True), ["inner"], "inner=True"),
        (option("text", False), None, "--no-text"),
        (option("text", False), ["text"], "text=False"),
        (
            option("predicted_ids", "FILE", python='reading={"ids": ...}'),
            None,
            "--ids FILE by oracle reports NAME FILE",
        ),
        (option("predicted_ids", "FILE", python='reading={"ids": ...}'), [], 'reading={"ids": ...}'),
    ],
)
def test_an_option_is_written_for_the_caller(given, keywords, advice):
    error = InputError("Nothing is known.", f"Pass {given}, or {given}.")
    assert str(caught(error, ("score", keywords))) == f"score: Nothing is known. Pass {advice}, or {advice}."


def test_fields_survive_the_way_between_processes():
    errors = [
        InputError("a.gz is cut short.", f"Pass {option('inner', True)}."),
        ExactnessError("k", "must be an int", "'5'", "Choose one."),
        InputError("a.gz is cut short."),
    ]
    for error in errors:
        back = pickle.loads(pickle.dumps(error))
        assert type(back) is type(error)
        assert vars(back) == vars(error)
        assert str(caught(back, ("study", ["inner"]))) == str(caught(error, ("study", ["inner"])))


def test_notes_are_in_the_terms_of_the_outermost_call():
    note = f"Pass {option('inner', True)}."

    @called("retrieve", ["inner"])
    def retrieve():
        return in_terms_of_caller(note)

    assert in_terms_of_caller(note) == "Pass --inner."
    assert retrieve() == "Pass inner=True."
    with called("score"):
        assert retrieve() == "Pass --inner."
    assert in_terms_of_caller(note) == "Pass --inner."


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
        "reports": lambda given: mo.reports(given).load(),
        "build_index": lambda given: mo.build_index(given, tmp_path / "J"),
    }.items():
        with pytest.raises(
            InputError, match=rf"^{name}: the reports in memory must be text or None; got int at position"
        ):
            call([1])
    rewarded = mo.reward("bleu")
    with pytest.raises(
        InputError,
        match=r"^reward: reference must be texts, or lists of chat messages .* each; got neither at position \d+\. ",
    ):
        rewarded(completions=["a"], reference=[1])
    scores = {"a": mo.score(["a", "b"], ["a", "c"], "bleu")}
    with pytest.raises(InputError, match=r"^compare: resamples must be an int from 100 to 1000000; got 7\. The def"):
        mo.compare(scores, resamples=7)


def test_commands_are_named_as_they_are_typed(fails, tmp_path):
    index, test, scores = tmp_path / "I", tmp_path / "t.csv", tmp_path / "s.csv"
    test.write_text("study_id,report\n1,a b\n2,b c\n")
    mo.build_index(test, index, metrics="bleu")
    mo.score(test, test, "bleu").write(scores)
    what = "--metric must be one of bleu-1, .* holds\\); got 'radgraph'\\. Build an index with"
    for command in ("retrieve", "baseline random", "study"):
        fails(*command.split(), index, test, "-m", "radgraph", match=rf"{command}: {what}")
    fails(
        "table", f"a={scores}", "--resamples", 7, match="table: --resamples must be an int from 100 to 1000000; got 7"
    )
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
