"""Sections of reports: the rules that cut a report into sections, and the check that two sets have the same one.

Two published rules cut a MIMIC-CXR report into sections. They disagree, so results name the one used. `yu2023` is
CXR-RePaiR's `extract_impressions.py`, the rule behind the counts of Yu et al. (2023). `mit` is the rule of
MIT-LCP/mimic-cxr's `section_parser.py`, written anew with a subset of its header dictionary. The 54 studies whose
sections its authors corrected by hand are not covered: their list is part of that repository, not of a rule.
"""

import re
from collections.abc import Sequence

from metric_oracle.base.errors import InputError
from metric_oracle.base.option_types import SECTIONS

JOINED = SECTIONS[2]

_MIT_HEADER = re.compile(r"\n ([A-Z ()/,-]+):\s")

# Typing errors and synonyms seen in MIMIC-CXR; "ndication" is an impression in the published dictionary.
_MIT_NAMES = {
    "conclusion": "impression",
    "conclusions": "impression",
    "findings and impression": "impression",
    "findings/impression": "impression",
    "findings-impression": "impression",
    "impresson": "impression",
    "impresion": "impression",
    "imression": "impression",
    "opinion": "impression",
    "ndication": "impression",
    "finding": "findings",
    "fidings": "findings",
    "findins": "findings",
    "findgings": "findings",
    "chest": "findings",
    "portable chest": "findings",
    "chest, two views": "findings",
    "comparisons": "comparison",
    "comparision": "comparison",  # codespell:ignore
    "clinical history": "history",
    "reason for exam": "indication",
    "reason for examination": "indication",
    "indications": "indication",
}
_MIT_SUBSTRINGS = ("impression", "findings", "history", "comparison", "addendum")
_MIT_VIEWS = re.compile(
    r"\b(?:chest|radiograph|x-ray|frontal|lateral|portable|upright|ap|pa)\b.*\b(?:views?|radiographs?|chest|ap|pa|lateral)\b"
)


def extract_yu2023(report: str) -> str:
    """Return the impression by the rule of CXR-RePaiR, "" where there is none.

    From the first line that begins with one blank and `IMPRESSION` (else ` FINDINGS AND IMPRESSION:`) to the end of the
    report, lines joined with nothing between, the header deleted wherever it occurs. No rule was published for other
    sections.
    """
    lines = report.splitlines()
    for start, header in ((" IMPRESSION", "IMPRESSION:"), (" FINDINGS AND IMPRESSION:", "FINDINGS AND IMPRESSION:")):
        for i, line in enumerate(lines):
            if line.startswith(start):
                return "".join(lines[i:]).replace(header, "").strip()
    return ""


def extract_mit(report: str) -> dict[str, str]:
    """Return section name -> stripped text by the rule of the MIMIC-CXR section parser.

    Of several sections with one name the last wins. A report without header is one "full report"; text before the
    first header is the "preamble"; with neither impression nor findings, the text after the first blank-line break of
    the last section is the "last_paragraph".
    """
    names, texts = ["preamble"], []
    header = _MIT_HEADER.search(report)
    if header is None:
        names = ["full report"]
    start = 0
    while header is not None:
        texts.append(report[start : header.start()])
        names.append(_mit_name(header[1]))
        start = header.end()
        # A header cannot begin on the line of another one.
        line_end = report.find("\n", start)
        header = _MIT_HEADER.search(report, start if line_end < 0 else line_end)
    texts.append(report[start:])

    sections = [
        (name, text)
        for name, text in zip(names, texts, strict=True)
        if text.strip() or name not in ("impression", "findings")
    ]
    if not any(name in ("impression", "findings") for name, _ in sections):
        last_name, last_text = sections[-1]
        paragraph, blank_line, rest = last_text.partition("\n \n")
        if blank_line:
            sections[-1:] = [(last_name, paragraph), ("last_paragraph", rest)]
    return {name: text.strip() for name, text in sections}


def _mit_name(header: str) -> str:
    """Return the name of the section that a header begins, by the MIT rule; lower case."""
    name = header.lower().strip()
    if name in _MIT_NAMES:
        return _MIT_NAMES[name]
    for part in _MIT_SUBSTRINGS:
        if part in name:
            return part
    return "findings" if _MIT_VIEWS.search(name) else name


# Sections under their names within one text, as ReXrank has them.
# Singular and plural, and headings without a colon, only where no sentence has them: "incidental finding: a nodule".
_HEADING = re.compile(
    r"\b(findings|impression)\s*[:\uff1a][*_]*\s*|[ \t]*\[(findings?|impressions?)\]\s*:?\s*"
    r"|^[ \t#*_]*(findings?|impressions?)[*_ \t]*(?:[:\uff1a][*_]*\s*|\n\s*)",
    re.IGNORECASE | re.MULTILINE,
)
_BLANKS = " \t\xa0\u3000"


def _may_have(text: str, word: str) -> bool:
    """Return False only if a text has no such word in any case: a quick look before `_HEADING` is searched."""
    return word in text.lower() or not text.isascii()


def _section_of(heading: re.Match[str]) -> str:
    """Return the section that a match of `_HEADING` begins."""
    return "findings" if str(heading[heading.lastindex or 0]).lower().startswith("finding") else "impression"


def headings_of(text: str) -> list[re.Match[str]]:
    """Return the headings of a text: those that begin a line or a sentence, or stand in brackets.

    "Other findings:" and "Clinical impression:" are words of a sentence.
    """
    if not (_may_have(text, "finding") or _may_have(text, "impression")):
        return []
    return [heading for heading in _HEADING.finditer(text) if not _is_within(text, heading)]


def _is_within(text: str, heading: re.Match[str]) -> bool:
    """Return whether a heading stands in the middle of a sentence: behind a word, or what goes on after a comma."""
    if heading[1] is None:
        return False
    before = text[: heading.start()].rstrip(_BLANKS)[-1:]
    # A dash belongs to the word unless a blank is behind it.
    return before.isalnum() or before in {",", "&", "/", "'"} or text[: heading.start()][-1:] == "-"


def _sections_in_order(text: str) -> list[str]:
    """Return the sections that the headings of a text begin, in their order."""
    return [*map(_section_of, headings_of(text))]


def by_headings(
    texts: Sequence[str | None], wanted: str | None, known_section: tuple[str | None, str] = (None, "")
) -> tuple[Sequence[str | None], tuple[str | None, str], str]:
    """Cut texts that hold both sections under "Findings:" and "Impression:" to the section that is wanted.

    They are cut if more than half of those with content have both headings; a text without the heading of the section
    then becomes None. If `wanted` is None or both, both sections are left, without the headings. If a section is wanted
    and more than half have words and then "Impression:" alone, these words are the findings. Return the texts, (their
    section, how it is known), which is `known_section` for texts that are not cut, and a note on what was done or "".

    Raise InputError if more than half have both only where a heading in the middle of a sentence counts.
    """
    contents = [text for text in texts if text and text.strip()]
    orders = [_sections_in_order(text) for text in contents]
    most = len(contents) / 2
    if sum({*order} == {*SECTIONS[:2]} for order in orders) > most:
        if wanted in (None, JOINED):
            return [text and without_headings(text) for text in texts], (JOINED, "headers"), NO_HEADINGS
        n = sum(_n_parts(order, str(wanted)) > 1 for order in orders)
        several = f" ({n:,} have it several times, and their parts are joined)" if n else ""
        cut = [text and under_heading(text, str(wanted)) for text in texts]
        return cut, (wanted, "headers"), under_note(str(wanted)) + several
    if wanted is not None and sum(map(_begins_unnamed, contents, orders)) > most:
        cut = [text and _by_impression(text, wanted) for text in texts]
        note = {"findings": "what stands before Impression:", "impression": under_note("impression")}
        return cut, (wanted, "headers"), note.get(wanted, "without Impression:")
    if wanted in SECTIONS[:2] and known_section[1] != "column":
        _refuse_within(contents, most)
    return texts, known_section, ""


def _n_parts(order: Sequence[str], section: str) -> int:
    """Return the number of parts of a section; headings of one section in a row begin one part."""
    return sum(here == section != before for before, here in zip(["", *order], order, strict=False))


def _begins_unnamed(text: str, order: Sequence[str]) -> bool:
    """Return whether a text has words, then "Impression:" as its only heading."""
    return [*order] == ["impression"] and headings_of(text)[0].start() > 0


def _by_impression(text: str, wanted: str) -> str | None:
    """Return the part that is wanted of a text that "Impression:", its only heading, divides.

    Without such a heading, a text has findings alone.
    """
    if not _begins_unnamed(text, _sections_in_order(text)):
        return text if wanted != "impression" else under_heading(text, wanted)
    (heading,) = headings_of(text)
    parts = {"findings": text[: heading.start()].strip(), "impression": text[heading.end() :].strip()}
    return parts[wanted] if wanted in parts else " ".join(filter(None, parts.values()))


def _refuse_within(contents: Sequence[str], most: float) -> None:
    """Raise InputError if more than `most` texts begin with a heading and have the other within a sentence."""
    n = 0
    for text in contents:
        order = _sections_in_order(text)
        # One that begins with a heading is divided; whether the other word divides it cannot be told.
        if len({*order}) == 1 and headings_of(text)[0].start() == 0:
            n += {*map(_section_of, _HEADING.finditer(text))} == {*SECTIONS[:2]}
    if n > most:
        raise InputError(
            f"{n:,} of {len(contents):,} texts begin with Findings: or Impression:, and have the other one in the "
            "middle of a sentence, where it may be a heading or a word of the text.",
            "Write it at the beginning of a line or sentence, or give the sections columns of their own.",
        )


NO_HEADINGS = "without Findings: and Impression:"


def under_note(section: str) -> str:
    """Return a note that texts were cut to what follows the heading of a section."""
    return f"what follows {section.capitalize()}:"


def under_heading(text: str, section: str) -> str | None:
    """Return what follows each heading of a section, up to one of the other; None without such a heading.

    The parts are stripped and joined with a blank. A blank text stays as it is.
    """
    if not text.strip():
        return text
    headings = headings_of(text)
    # One that follows a heading of the same section is a word of that section.
    turns = [
        heading
        for before, heading in zip([None, *headings], headings, strict=False)
        if before is None or _section_of(before) != _section_of(heading)
    ]
    ends = [heading.start() for heading in turns[1:]] + [len(text)]
    parts = [
        text[heading.end() : end] for heading, end in zip(turns, ends, strict=False) if _section_of(heading) == section
    ]
    return " ".join(filter(None, map(str.strip, parts))) if parts else None


def without_headings(text: str) -> str:
    """Return a text without its headings, findings before impression; one without both stays as it is."""
    parts = [under_heading(text, section) for section in ("findings", "impression")]
    headings = headings_of(text)
    if not headings or None in parts or not text.strip():
        return text
    return " ".join(filter(None, [text[: headings[0].start()].strip(), *parts]))


def check_sections(
    one: tuple[str | None, str],
    other: tuple[str | None, str],
    names: tuple[str, str] = ("references", "predictions"),
    step: str = "",
    has_option: bool = True,
) -> str | None:
    """Raise InputError if the sections of two sets of reports differ; return a warning if they may, else None.

    A side is (section or None, how it is known), see `corpora.reports.Reports`; `names` is what the sides are called. A
    section that is not known agrees with all others. There is a warning if they differ only according to how Yu et al.
    tabulate the model, which may be wrong, or if one side has both sections under their names, and that of the other is
    not known. `has_option` says whether the user can state the section of `other`. `step` is the next step
    of the error, by default to read `one` in the section of `other`.
    """
    if (one[0] is None) != (other[0] is None) and (JOINED, "headers") in (one, other):
        both, unknown = names if one[0] else names[::-1]
        passed = "`mo.reports(..., mo.Read(section='findings'))` or `mo.reports(..., mo.Read(section='impression'))`"
        return (
            f"the {both} hold findings and impression under their names, and the section of the {unknown} is not "
            f"known: both are compared. Pass {passed} to compare one"
        )
    if one[0] is None or other[0] is None or one[0] == other[0]:
        return None
    if "paper" in (one[1], other[1]):
        stated = f"`mo.reports(predictions, mo.Read(section={one[0]!r}))`"
        more = f", or say by {stated} what the model writes" if has_option else ""
        return (
            f"the {names[0]} are of section {one[0]}, but Yu et al. (2023) compare such {names[1]} with {other[0]}: "
            f"pass `mo.reports(..., mo.Read(section={other[0]!r}))`{more}"
        )
    raise InputError(
        f"{names[0]} and {names[1]}",
        "must be of one section",
        f"{one[0]} (by {one[1]}) and {other[0]} (by {other[1]})",
        f"{step}." if step else f"Pass `mo.reports(..., mo.Read(section={other[0]!r}))`.",
    )
