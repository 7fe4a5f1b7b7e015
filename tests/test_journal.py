"""Journals: damage in a line costs that line, and lines that are missing, exchanged or of another owner are found."""

import os

import pytest

from metric_oracle.base.journal import Journal

RECORDS = [{"name": name, "value": value} for name, value in (("a", 0.5), ("b", 1.5), ("c", 2.5), ("d", 3.5))]


@pytest.fixture
def path(tmp_path):
    written(tmp_path / "journal")
    return tmp_path / "journal"


def written(path, owner="anna", records=RECORDS):
    journal, file = Journal(owner), os.open(path, os.O_RDWR | os.O_CREAT)
    for record in records:
        journal.append(file, record)
    os.close(file)
    return journal


def lines(raw, owner="anna"):
    return [*Journal(owner).take(raw)]


def test_what_was_appended_is_read(path):
    found = lines(path.read_bytes())
    assert [line.record for line in found] == RECORDS
    assert [(line.number, line.flaw) for line in found] == [(i, "") for i in range(1, 5)]
    journal = Journal("anna")
    assert len([*journal.take(path.read_bytes())]) == 4
    assert (journal.size, journal.end) == (path.stat().st_size, written(path.with_name("other")).end)


def test_any_byte_may_become_any_other(path):
    """The line of the byte is lost and told, or whole and told where only its end is another; no other line is."""
    content = path.read_bytes()
    for place in range(len(content)):
        number = content[:place].count(b"\n")
        for byte in {0, 10, 13, 34, 44, 48, 125, 255, content[place] ^ 1, content[place] ^ 32} - {content[place]}:
            changed = content[:place] + bytes([byte]) + content[place + 1 :]
            found = lines(changed if changed.endswith(b"\n") else changed + b"\n")
            kept = [line.record for line in found if line.record is not None]
            is_end = content[place] == 10
            assert kept == (RECORDS if is_end else [record for i, record in enumerate(RECORDS) if i != number])
            told = [line.number for line in found if line.flaw]
            assert told[0] == number + 1
            assert len(told) <= 2  # a line feed in a line makes two of it


def test_lines_of_another_owner_are_damage(path):
    assert all(line.record is None for line in lines(path.read_bytes(), "ben"))
    other = path.with_name("other")
    written(other, "ben")
    both = path.read_bytes() + other.read_bytes()
    assert [line.flaw for line in lines(both)] == [""] * 4 + ["is damaged"] * 4


def test_lines_out_of_their_place_are_told(path):
    one = path.read_bytes().splitlines(keepends=True)
    for content, flawed in (
        (one[1:], [1]),
        (one[:1] + one[2:], [2]),
        ([one[0], one[2], one[1], one[3]], [2, 3, 4]),
        (one + one, [5]),
    ):
        assert [line.number for line in lines(b"".join(content)) if line.flaw] == flawed


def test_lines_that_are_cut_off_show_at_the_end_alone(path):
    whole = path.read_bytes()
    n = len(whole.splitlines(keepends=True)[-1])
    journal = Journal("anna")
    assert not any(line.flaw for line in journal.take(whole[:-n]))
    assert journal.end.lines == 3


def test_a_write_goes_on_where_it_was_cut_short(tmp_path, monkeypatch):
    """The system may write a part and raise nothing; or nothing more, and then the line is not there at all."""
    whole, write = (tmp_path / "journal", os.pwrite)
    monkeypatch.setattr(os, "pwrite", lambda file, raw, at: write(file, raw[:7], at))
    written(whole)
    assert [line.record for line in lines(whole.read_bytes())] == RECORDS
    file = os.open(whole, os.O_RDWR)
    journal, before = Journal("anna"), whole.read_bytes()
    assert len([*journal.take(before)]) == 4
    left = [20, 0]
    monkeypatch.setattr(os, "pwrite", lambda file, raw, at: write(file, raw[: left.pop(0)], at))
    with pytest.raises(OSError, match="No space left"):
        journal.append(file, RECORDS[0])
    assert whole.read_bytes() == before
    os.write(os.open(whole, os.O_WRONLY | os.O_APPEND), b'{"name":"torn","va')
    monkeypatch.undo()
    journal.append(file, RECORDS[1])
    assert [line.record for line in lines(whole.read_bytes())] == [*RECORDS, RECORDS[1]]
