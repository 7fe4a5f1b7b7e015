"""Every line that the package raises is read by some test: four words of its literal text stand in a row there."""

import ast
import pickle
import re
from pathlib import Path

import pytest

import metric_oracle
import metric_oracle as mo
from metric_oracle.base.errors import ExactnessError, InputError, called, in_terms_of_caller, option

PACKAGE = Path(metric_oracle.__file__).parent
WORDS = 4
# Helpers that raise a rule of which a part stands at the call: what they put before it, its position and its keyword.
HELPERS = {
    "check_left_out": ("left out ", 1, "where"),
    "check_given": ("be given ", 2, "where"),
    "check_in_range": ("", None, "note"),
    "check_one_of": ("", None, "note"),
}


def is_text(node):
    return isinstance(node, ast.JoinedStr) or (isinstance(node, ast.Constant) and isinstance(node.value, str))


def shingles(node, most=WORDS):
    """Return the runs of `most` words (of all, where there are fewer) of a string or f-string, cut at its fields."""
    parts = node.values if isinstance(node, ast.JoinedStr) else [node]
    text = "".join(part.value if isinstance(part, ast.Constant) else "\0" for part in parts)
    cut = [re.findall(r"\w+", run.replace("\\", " ")) for run in text.split("\0")]
    n = min(most, max(map(len, cut)))
    return {tuple(run[i : i + n]) for run in cut for i in range(len(run) - n + 1)} - {()}


def messages(tree):
    """Yield line and texts of every raise with a literal message, in the call or in a name that it was given.

    A call of one of `HELPERS` with a part of a rule is such a raise. Where a field of the message is a name, what that
    name was given belongs to the texts: `must be {rule}`.
    """
    bound = {}  # name -> [(line, value)]
    for node in ast.walk(tree):
        if isinstance(node, ast.Assign | ast.For):
            targets, value = (node.targets, node.value) if isinstance(node, ast.Assign) else ([node.target], node.iter)
            for name in {n.id for target in targets for n in ast.walk(target) if isinstance(n, ast.Name)}:
                bound.setdefault(name, []).append((node.lineno, value))

    def last(name, line):
        before = [found for found in bound.get(name, ()) if found[0] < line]
        return max(before, key=lambda found: found[0])[1] if before else ast.Pass()

    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in HELPERS:
            before, place, keyword = HELPERS[node.func.id]
            given = {k.arg: k.value for k in node.keywords} | dict(enumerate(node.args))
            part = given.get(place, given.get(keyword))
            part = last(part.id, node.lineno) if isinstance(part, ast.Name) else part
            if is_text(part):
                parts = part.values if isinstance(part, ast.JoinedStr) else [part]
                text = ast.JoinedStr([ast.Constant(before), *parts])
                if any(len(run) > 2 for run in shingles(text)):
                    yield node.lineno, [text]
        if isinstance(node, ast.Raise) and isinstance(node.exc, ast.Call):
            text = line_of(node.exc, lambda name, line=node.lineno: last(name, line))
            if text is not None:
                names = {n.id for n in ast.walk(text) if isinstance(n, ast.Name)}
                fields = [n for name in names for n in ast.walk(last(name, node.lineno)) if is_text(n)]
                yield node.lineno, [text, *fields]


def line_of(call, value_of):
    """Return the line that an error will be, as one f-string: of its fields, or of sentence and next step."""

    def resolved(node):
        text = value_of(node.id) if isinstance(node, ast.Name) else node
        return text if is_text(text) else node

    given = [resolved(arg) for arg in call.args]
    if not given or not (len(given) == 4 or is_text(given[0])):
        return None
    parts = []
    for before, part in zip(["", " ", "; got ", ". "] if len(given) == 4 else ["", " "], given, strict=False):
        parts.append(ast.Constant(before))
        parts += part.values if isinstance(part, ast.JoinedStr) else [part]
    return ast.JoinedStr(parts)


def unread(source, known):
    """Return the lines of the raises whose message no test reads."""
    return [line for line, texts in messages(ast.parse(source)) if not known & set().union(*map(shingles, texts))]


@pytest.fixture(scope="module")
def known():
    paths = [path for path in Path(__file__).parent.rglob("*.py") if path != Path(__file__)]
    trees = [ast.parse(path.read_text(encoding="utf-8")) for path in paths]
    return set().union(
        *(shingles(node, n) for tree in trees for node in ast.walk(tree) if is_text(node) for n in (3, WORDS))
    )


def test_every_message_is_read_by_a_test(known):
    sources = {path.relative_to(PACKAGE): path.read_text(encoding="utf-8") for path in PACKAGE.rglob("*.py")}
    assert sum(len([*messages(ast.parse(source))]) for source in sources.values()) > 300
    assert [f"{path}:{line}" for path, source in sources.items() for line in unread(source, known)] == []


@pytest.mark.parametrize(
    ("source", "lines"),
    [
        ('raise E("retrieve: -k must be an int")', []),
        ('raise E("qwz: a line that nobody tested")', [1]),
        ('raise E(f"{name}: qwz {k} that nobody tested; got {k}.")', [1]),
        ('msg = "retrieve: -k must be an int"\nraise E(msg)\nmsg = "qwz: a line of no test"\nraise E(msg)', [4]),
        ('if a:\n    rule = "qwz of the sort that nobody tested"\n    raise E(f"{f}: {a} qwz {rule}.")', [3]),
        ('for rule in ("given where the file holds no ids",):\n    raise E(f"{f}: {rule} qwz {a}.")', []),
        ("raise\nraise E\nraise E(3)\nraise E(error)", []),
        ('raise E("k", "must be an int", f"{k}", step)', []),
        ('raise E("k", "must be qwz", f"{k}", step)', [1]),
        ('raise E(f"qwz of {path} that nobody tested.", "Qwz it again.")', [1]),
        ('rule = "must be a qwz that nobody tested"\nraise E(name, rule, f"{k}", step)', [2]),
        ('check_left_out({"part": part}, "with a runner", step)', []),
        ('check_left_out({"part": part}, "for qwz", step)', [1]),
        ('where = f"for qwz {k}"\ncheck_given("k", k, where, step)', [2]),
        ('check_in_range("k", k, ge=1, note=f" (reports that {name} can score)")', []),
        ('check_in_range("k", k, ge=1, note=" (reports that qwz)")', [1]),
    ],
)
def test_the_guard(source, lines, known):
    assert unread(source, known) == lines


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
        (option("model_ids", "NAME=FILE", python='reading={"ids": ...}'), None, "--model-ids NAME=FILE"),
        (option("model_ids", "NAME=FILE", python='reading={"ids": ...}'), [], 'reading={"ids": ...}'),
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
    fails("table", f"a={scores}", "--random", "b", match=r"table: --random must name systems of the table, a; got 'b'")
    weights = tmp_path / "w.json"
    weights.write_text("{}")
    for command in ("retrieve", "baseline identity"):
        match = (
            "retrieve: --weights must be a JSON file that oracle fit-composite writes"
            if command == "retrieve"
            else ("oracle baseline identity: no such option --weights")
        )
        fails(*command.split(), index, test, "-m", "composite", "--weights", weights, match=match)


NAMED = {("base/errors.py", "called"), ("commands/groups.py", "invoke")}  # what puts the name in front


def test_no_message_names_the_function_itself():
    named, taken = [], []
    for path in PACKAGE.rglob("*.py"):
        tree, place = ast.parse(path.read_text(encoding="utf-8")), path.relative_to(PACKAGE).as_posix()
        for line, (text, *_) in messages(tree):
            parts = [part.value if isinstance(part, ast.Constant) else "x" for part in text.values]
            if re.match(r"[a-z_.]+: ", "".join(parts)):
                named.append(f"{place}:{line}")
        for node in ast.walk(tree):
            if isinstance(node, ast.FunctionDef) and (place, node.name) not in NAMED:
                annotations = {a.arg: a.annotation for a in [*node.args.args, *node.args.kwonlyargs]}
                if getattr(annotations.get("function"), "id", "") == "str":
                    taken.append(f"{place}:{node.lineno}")
    assert (named, taken) == ([], [])
