"""The sessions of `frozen`, played on changed copies of a small example: what every command prints and writes."""

import csv
import functools
import json
import random
import re
import shlex
import shutil
import tempfile
import tomllib
from pathlib import Path
from unittest import mock

import numpy as np
import pyarrow.parquet
import typer

import frozen
from metric_oracle import cli
from metric_oracle.synthetic.example import write_example

N_REPORTS, N_TESTS = 180, 8  # few, but two shards of 150 rows and enough studies for a survey
WIDE = 200  # columns of the terminal: a signature is one line
RESAMPLES = "100"
GIVEN = "given"  # a folder beside that of a session, with the files as they were before the first command
QUERIES = "TESTS"  # an index of queries, which has no shards
BY_PLACE = ("samples.csv",)  # files whose rows other files number
# Files whose rows are the studies of a table, in its order, which intervals follow.
IN_ORDER = ("train.csv", "test.csv", "samples.csv", "ratings.csv", "preferences.csv", "orders.csv")
DIGEST = re.compile(r"(?<=[:\"(])(?=\d*[a-f])[0-9a-f]{8,64}(?=[|\\\")\s])")
OF_LINE = re.compile(r"(?<=[a-z]:)[0-9a-f]{8}(?=[|\\])")  # a digest in a signature of one line
WRAPPED = re.compile(r"(\w+\|[^\n]*)\n(?=[^\s|]+\|)")  # a signature of one line, in two
FINGERPRINT = re.compile(r"(?<=fingerprint)\s+[0-9a-f]+\s+[0-9a-f]+")
# What each shard has for itself: its documents, and the pairs that its bounds skip.
OF_SHARDS = re.compile(r'\n *"units": \d+,?|[\d.]+% of pairs skipped: [^\n]*(\n[^\n|]+$)?', re.MULTILINE)
ADDED = re.compile(r"^(columns +)remark, (.*), zz", re.MULTILINE)  # columns of a table that `rename` changed
LONG = re.compile(r"-?\d+\.\d{9,}(?:e-?\d+)?")  # a float that is written whole: the last digits may be rounding
LETTERS = str.maketrans("0123456789", "abcdefghij")
DIGITS = str.maketrans("abcdefghij", "0123456789")


@functools.cache
def example():
    """Return the folder of a small example with all that sessions read, made once."""
    folder = tempfile.TemporaryDirectory(prefix="relations-")
    path = Path(folder.name) / "try"
    write_example(path, N_REPORTS, N_TESTS)
    frozen.prepare(path)
    return folder, path


@functools.cache
def parameters(command):
    """Return the parameters of a command, such as ("survey", "create"); none of what is no command."""
    found = typer.main.get_command(cli.app)
    for name in command:
        found = found.get_command(None, name) if hasattr(found, "list_commands") else found
    return [] if found is None or hasattr(found, "list_commands") else found.params


def options_of(words):
    """Return the options of the command that a line calls, with their parameters."""
    return {option: parameter for parameter in parameters(tuple(words[:2])) for option in parameter.opts}


def with_defaults(words):
    """Return the words of a command with every option that has a default, and is not given, at this default."""
    words = [*words]
    for option, parameter in options_of(words).items():
        is_stated = isinstance(parameter.default, int | float | str) and not (parameter.multiple or parameter.is_flag)
        if option.startswith("--") and is_stated and not {*parameter.opts} & {*words}:
            words += [option, str(getattr(parameter.default, "value", parameter.default))]
    return words


def quick(words):
    """Return the words of a command with few resamples."""
    if "--resamples" in words:
        return [RESAMPLES if words[i - 1] == "--resamples" else word for i, word in enumerate(words)]
    return [*words, "--resamples", RESAMPLES] if "--resamples" in options_of(words) else words


def play(name, change=lambda folder: None, before=lambda folder, words: words, after=lambda words, outcome: None):
    """Play a session in a changed copy of the example; return what each command says, and each file at the end.

    `change` changes the folder before the first command, `before` may change it and the words before each, and `after`
    gets the words of each with its outcome. Digests are replaced.
    """
    said, files = {}, {}
    with tempfile.TemporaryDirectory(prefix="relations-") as place, mock.patch.object(frozen, "HELP_WIDTH", WIDE):
        folder = Path(shutil.copytree(example()[1], Path(place) / "try"))
        change(folder)
        given = {path.name for path in shutil.copytree(folder, folder.with_name(GIVEN)).iterdir()}
        with frozen.surroundings(folder):
            for number, line in enumerate(frozen.commands(frozen.SESSIONS[name][1])):
                words = shlex.split(line)
                if words[0] == "rate":
                    frozen.rate(words[1])
                    continue
                words = before(folder, quick(words))
                outcome = frozen.run(words, is_terminal=True)
                said[f"{number} oracle {line}"] = "\n".join(map(str, outcome))
                after(words, outcome)
        for path in sorted(path for path in folder.rglob("*") if path.is_file()):
            is_shown = path.suffix not in frozen.BINARY and path.name not in frozen.SECRET_FILES
            if is_shown and path.relative_to(folder).parts[0] not in given:
                files[path.relative_to(folder).as_posix()] = path.read_bytes(), frozen.file_text(path, [])
    return (
        {key: masked(text) for key, text in said.items()},
        {key: (content, masked(text)) for key, (content, text) in files.items()},
    )


def masked(text):
    """Return a text without times and digests, and with 10 digits of long floats."""
    text = WRAPPED.sub(r"\1", frozen.normalised(text))
    for digest in (FINGERPRINT, OF_LINE, DIGEST):
        text = digest.sub("#", text)
    return LONG.sub(lambda found: f"{float(found[0]):.10g}", text)


def given_of(folder, words):
    """Return the files of a folder that a command names, in its order; of a name in oracle.toml those of its entry."""
    entries = tomllib.loads((folder / "oracle.toml").read_text(encoding="utf-8"))["reports"]
    typed = [word.rpartition("=")[2] for word in words]
    named = [value for word in typed for value in (word, *map(str, entries.get(word, {}).values()))]
    return [folder / name for name in dict.fromkeys(named) if (folder / name).is_file()]


def rows_of(path):
    """Return the rows of a text file with one record a row, the header first, or of other files; see `write_rows`."""
    if path.suffix == ".csv":
        with path.open(newline="", encoding="utf-8") as file:
            return [*csv.reader(file)]
    if path.suffix == ".jsonl":
        return [None, *path.read_text(encoding="utf-8").splitlines()]
    if path.suffix == ".npz":
        with np.load(path) as arrays:
            return [[*arrays], *zip(*arrays.values(), strict=True)]
    return [None, *json.loads(path.read_text(encoding="utf-8")).items()]


def write_rows(path, rows):
    """Write the rows of a file that `rows_of` returned."""
    head, *body = rows
    if path.suffix == ".csv":
        with path.open("w", newline="", encoding="utf-8") as file:
            csv.writer(file, lineterminator="\n").writerows(rows)
    elif path.suffix == ".jsonl":
        path.write_text("".join(f"{line}\n" for line in body), encoding="utf-8")
    elif path.suffix == ".npz":
        np.savez(path, **{name: np.array([row[i] for row in body]) for i, name in enumerate(head)})
    else:
        path.write_text(json.dumps(dict(body)), encoding="utf-8")


def rename(folder):
    """Give every study another id, of letters, in the same order; add columns that nobody asks for to tables.

    Tables of which every other column is a label get none.
    """
    for path in folder.iterdir():
        if path.suffix == ".npz":
            head, *body = rows_of(path)
            write_rows(path, [head, *((renamed(str(row[0])), *row[1:]) for row in body)])
        else:
            path.write_text(renamed(path.read_text(encoding="utf-8")), encoding="utf-8")
        if path.suffix == ".csv" and not path.name.endswith("_srr.csv"):
            head, *body = rows_of(path)
            write_rows(path, [["remark", *head, "zz"], *(["n/a", *row, "x"] for row in body)])


def renamed(text):
    """Return a text with other ids: 50000012 is kaaaaabc."""
    return re.sub(r"\b5(\d{7})\b", lambda found: "k" + found[1].translate(LETTERS), text)


def named_back(text):
    """Return a text with the ids as they were, and without the added columns where `oracle reports` lists columns."""
    text = ADDED.sub(r"\1\2" + " " * len("remark, , zz"), text)
    return re.sub(r"\bk([a-j]{7})\b", lambda found: "5" + found[1].translate(DIGITS), text)


def reverse_others(folder, words):
    """Reverse the files that a command names, but the first and those of `IN_ORDER`; return the words."""
    for number, path in enumerate(given_of(folder, words)):
        given = folder.with_name(GIVEN) / path.name
        if given.is_file() and path.name not in IN_ORDER:
            head, *body = rows_of(given)
            write_rows(path, [head, *(body[::-1] if number else body)])
    return words


def shuffle(folder):
    """Put the rows of all files into another order."""
    for number, path in enumerate(sorted(folder.iterdir())):
        if path.name not in BY_PLACE and path.suffix != ".toml":
            head, *body = rows_of(path)
            random.Random(number).shuffle(body)
            write_rows(path, [head, *body])


def into_shards(folder, words):
    """Build a set of shards in place of an index."""
    is_whole = words[0] == "build-index" and "--shard-rows" not in words and QUERIES not in words
    return [*words, "--shard-rows", "37"] if is_whole else words


def numbers_by_id(found, path):
    """Return the numbers of each study in a table that a session wrote, sorted; None for other files.

    Which of equal reports is listed follows the rows of the corpus, so that of lists only scores and ties are compared.
    Draws, parts of a search and the nearest of equal images follow the rows, too.
    """
    content, text = found[path]
    _, signature = found.get(f"{path}.signature.json", (b"", ""))
    if not path.endswith((".parquet", ".csv")) or re.search(r'"(draws|part|nearest)"', text + signature):
        return None
    if path.endswith(".csv"):
        names, *rows = csv.reader(content.decode().splitlines())
    else:
        table = pyarrow.parquet.read_table(pyarrow.BufferReader(content))
        names, rows = table.column_names, [[*row.values()] for row in table.to_pylist()]
    if names[0] not in ("query_id", "anchor_id"):
        return None
    kept = [names[0], "rank", "score", "n_ties"] if "candidate_id" in names else names
    places = [names.index(name) for name in kept if name in names]
    return sorted(masked(json.dumps([row[place] for place in places])) for row in rows)
