"""What users see is what `tests/frozen` says: help, output of commands, files, signatures, public names."""

import difflib
import math
import re

import pytest

import frozen

FLOAT = re.compile(r"(-?\d+\.\d{11,}(?:e-?\d+)?)")  # as computed; another processor may round its last digits otherwise


def same(expected, found):
    """Say whether two lines are equal but for last digits of floats that are written whole."""
    parts, others = FLOAT.split(expected), FLOAT.split(found)
    return parts[::2] == others[::2] and all(
        math.isclose(float(a), float(b), rel_tol=1e-9, abs_tol=1e-12)
        for a, b in zip(parts[1::2], others[1::2], strict=True)
    )


def difference(name, found):
    """Return how a text differs from the frozen file, as lines of a diff; none where it does not."""
    path = frozen.FOLDER / name
    before = path.read_text(encoding="utf-8").splitlines() if path.is_file() else []
    after = found.splitlines()
    if len(before) == len(after):
        after = [old if same(old, new) else new for old, new in zip(before, after, strict=True)]
    return [*difflib.unified_diff(before, after, f"tests/frozen/{name}", "now", lineterm="", n=1)]


def check(found, *places):
    """Compare texts with the frozen files of some folders, or with single files."""
    stored = {
        path.relative_to(frozen.FOLDER).as_posix()
        for place in places
        for path in [frozen.FOLDER / place, *(frozen.FOLDER / place).rglob("*")]
        if path.is_file()
    }
    lines = [f"tests/frozen/{name} is not made any more" for name in sorted(stored - found.keys())]
    for name, text in found.items():
        lines += difference(name, text)[:60]
    if lines:
        change = "Users see a change. If it is intended, run python tests/frozen.py and commit tests/frozen."
        pytest.fail("\n".join([change, *lines[:200]]), pytrace=False)


def needed(*names):
    """Skip where the packages that sessions need are not installed."""
    for name in names:
        for package in frozen.SESSIONS[name][0]:
            pytest.importorskip(package)


def test_help_is_as_frozen():
    stored = (frozen.FOLDER / "help/versions.txt").read_text(encoding="utf-8")
    if stored != frozen.versions_of_help():
        pytest.skip(f"other versions lay out the help: {stored.split()}")
    check(frozen.helps(), "help")


@pytest.mark.parametrize("name", frozen.SESSIONS)
def test_commands_print_and_write_what_is_frozen(name):
    needed(name)
    check(frozen.session(name)[0], f"commands/{name}.txt", f"files/{name}")


def test_signatures_have_the_frozen_keys():
    needed(*frozen.SESSIONS)
    check({"signatures.txt": frozen.signature_keys()}, "signatures.txt")


def test_public_names_are_as_frozen():
    check({"public.txt": frozen.public()}, "public.txt")


def test_no_other_file_is_frozen():
    names = {path.relative_to(frozen.FOLDER).parts[0] for path in frozen.FOLDER.iterdir()}
    assert names <= {"help", "commands", "files", "public.txt", "signatures.txt"}
    for folder in ("commands", "files"):
        assert {path.stem for path in (frozen.FOLDER / folder).iterdir()} == {*frozen.SESSIONS}


def test_a_change_is_shown():
    text = (frozen.FOLDER / "public.txt").read_text(encoding="utf-8")
    with pytest.raises(pytest.fail.Exception, match=r"(?s)run python tests/frozen\.py.*-mo\.__all__.*\+mo\.__every__"):
        check({"public.txt": text.replace("mo.__all__", "mo.__every__")}, "public.txt")
    with pytest.raises(pytest.fail.Exception, match=r"public\.txt is not made any more"):
        check({}, "public.txt")
    assert same("mean 0.12345678901234", "mean 0.12345678901235")
    assert not same("mean 0.12345678901234", "mean 0.12345679901235")
    assert not same("mean 0.123", "mean 0.124")
