"""Every line that the package raises is read by some test: four words of its literal text stand in a row there."""

import ast
import re
from pathlib import Path

import pytest

import metric_oracle
import metric_oracle as mo
from metric_oracle.errors import ExactnessError, InputError, called

PACKAGE = Path(metric_oracle.__file__).parent
WORDS = 4


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

    Where a field of the message is a name, what that name was given belongs to the texts: `must be {rule}`.
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
        if isinstance(node, ast.Raise) and isinstance(node.exc, ast.Call) and node.exc.args:
            given = node.exc.args[0]
            text = last(given.id, node.lineno) if isinstance(given, ast.Name) else given
            if is_text(text):
                names = {n.id for n in ast.walk(text) if isinstance(n, ast.Name)}
                fields = [n for name in names for n in ast.walk(last(name, node.lineno)) if is_text(n)]
                yield node.lineno, [text, *fields]


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
        ('raise E("retrieve: k must be an int")', []),
        ('raise E("qwz: a line that nobody tested")', [1]),
        ('raise E(f"{name}: qwz {k} that nobody tested; got {k}.")', [1]),
        ('msg = "retrieve: k must be an int"\nraise E(msg)\nmsg = "qwz: a line of no test"\nraise E(msg)', [4]),
        ('if a:\n    rule = "qwz of the sort that nobody tested"\n    raise E(f"{f}: {a} qwz {rule}.")', [3]),
        ('for rule in ("given where the file holds no ids",):\n    raise E(f"{f}: {rule} qwz {a}.")', []),
        ("raise\nraise E\nraise E(3)\nraise E(error)", []),
    ],
)
def test_the_guard(source, lines, known):
    assert unread(source, known) == lines


def test_errors_name_what_was_called():
    """Of nested calls the outermost; readers stay, whose argument is the file."""

    def raised(text, error=InputError):
        with pytest.raises(error) as found, called("study"), called("retrieve"):
            raise error(text)
        return str(found.value)

    assert raised("score: k must be 1; got 2: no. Choose one.") == "study: k must be 1; got 2: no. Choose one."
    assert raised("retrieve: bounds must hold.", ExactnessError) == "study: bounds must hold."
    for text in (
        "read_reports: path must be a",
        "open_index: index must be",
        "align_graphs: a",
        "oracle x: -k must",
        "A",
    ):
        assert raised(text) == text


def test_shared_code_is_not_taken_for_another_function(tmp_path):
    index = mo.build_index(["a b", "b c"], tmp_path / "I", metrics="bleu")
    beside = {"metric": "bleu", "idf": "off"}
    for name, call in {
        "retrieve": lambda: mo.retrieve(index, ["a"], **beside),
        "baseline": lambda: mo.baseline(index, ["a"], "random", **beside),
        "expectation": lambda: mo.expectation(index, ["a"], **beside),
    }.items():
        with pytest.raises(InputError, match=rf"^{name}: idf must be left out for metric 'bleu-2'; got a value\."):
            call()
    for name, call in {
        "retrieve": lambda given: mo.retrieve(index, given, "bleu"),
        "baseline": lambda given: mo.baseline(index, given, "identity", "bleu"),
        "verify": lambda given: mo.verify(index, tmp_path / "r.csv", given),
        "score": lambda given: mo.score(given, ["a"], "bleu"),
        "compute": lambda given: mo.compute(references=given, predictions=["a"], metrics="bleu"),
        "load_queries": mo.load_queries,
        "build_index": lambda given: mo.build_index(given, tmp_path / "J"),
    }.items():
        with pytest.raises(InputError, match=rf"^{name}: the reports in memory must be text or None; got int at place"):
            call([1])
    rewarded = mo.reward("bleu")
    with pytest.raises(InputError, match=r"^reward: the texts must be text or None; got int at place 0\. Drop it\.$"):
        rewarded(completions=["a"], reference=[1])
    scores = {"a": mo.score(["a", "b"], ["a", "c"], "bleu")}
    with pytest.raises(InputError, match=r"^compare: resamples must be an int of at least 100; got 7\. The default"):
        mo.compare(scores, resamples=7)


def test_commands_are_named_as_they_are_typed(fails, tmp_path):
    index, test, scores = tmp_path / "I", tmp_path / "t.csv", tmp_path / "s.csv"
    test.write_text("study_id,report\n1,a b\n2,b c\n")
    mo.build_index(test, index, metrics="bleu")
    mo.score(test, test, "bleu").write(scores)
    what = "metric must be one of bleu-1, .* holds\\); got 'radgraph'\\. Build an index with"
    for command in ("retrieve", "baseline random", "study"):
        fails(*command.split(), index, test, "-m", "radgraph", match=rf"{command.split()[0]}: {what}")
    fails("table", f"a={scores}", "--resamples", 7, match=r"table: resamples must be an int of at least 100; got 7")
    fails("table", f"a={scores}", "--random", "b", match=r"table: random must name systems of the table, a; got 'b'")
    weights = tmp_path / "w.json"
    weights.write_text("{}")
    for command in ("retrieve", "baseline identity"):
        name = command.split()[0]
        match = (
            rf"{name}: weights must be a JSON file that fit-composite writes"
            if name == "retrieve"
            else ("oracle baseline identity: no such option --weights")
        )
        fails(*command.split(), index, test, "-m", "composite", "--weights", weights, match=match)
