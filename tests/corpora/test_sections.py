from metric_oracle.corpora.sections import extract_mit, extract_yu2023

REPORT = (
    "                                 FINAL REPORT\n"
    " EXAMINATION:  CHEST (PA AND LAT)\n"
    " \n"
    " INDICATION:  Cough.\n"
    " \n"
    " FINDINGS: \n"
    " \n"
    " Lungs are clear.\n"
    " Heart is normal.\n"
    " \n"
    " IMPRESSION: \n"
    " \n"
    " No acute\n"
    " process.\n"
    " \n"
    " NOTIFICATION:  Called to the ward.\n"
)


def test_yu2023_runs_to_the_end_and_joins_lines_with_nothing():
    assert extract_yu2023(REPORT) == "No acute process.  NOTIFICATION:  Called to the ward."


def test_yu2023_needs_no_colon_and_deletes_the_header_wherever_it_occurs():
    assert extract_yu2023(" IMPRESSION\n Clear.\n IMPRESSION: Again.") == "IMPRESSION Clear.  Again."


def test_yu2023_joins_words_where_a_line_has_no_leading_blank():
    assert extract_yu2023(" IMPRESSION: No acute\nprocess.") == "No acuteprocess."


def test_yu2023_takes_findings_and_impression_only_without_impression():
    both = " FINDINGS AND IMPRESSION: Clear lungs.\n"
    assert extract_yu2023(both) == "Clear lungs."
    assert extract_yu2023(both + " IMPRESSION: Normal.\n") == "Normal."


def test_yu2023_is_empty_without_header_or_with_two_blanks_before_it():
    assert extract_yu2023("FINAL REPORT\n  IMPRESSION: Clear.") == ""
    assert extract_yu2023("IMPRESSION: Clear.") == ""


def test_mit_cuts_at_the_next_header_and_keeps_line_breaks():
    sections = extract_mit(REPORT)
    assert sections["impression"] == "No acute\n process."
    assert sections["findings"] == "Lungs are clear.\n Heart is normal."
    assert sections["indication"] == "Cough."
    assert sections["preamble"] == "FINAL REPORT"
    assert sections["notification"] == "Called to the ward."


def test_mit_normalises_headers():
    assert extract_mit("x\n CONCLUSION: Clear.")["impression"] == "Clear."
    assert extract_mit("x\n FINDINGS/IMPRESSION: Clear.")["impression"] == "Clear."
    assert extract_mit("x\n NDICATION: Clear.")["impression"] == "Clear."
    assert extract_mit("x\n FINAL IMPRESSION: Clear.")["impression"] == "Clear."
    assert extract_mit("x\n CHEST, TWO VIEWS: Clear.")["findings"] == "Clear."
    assert extract_mit("x\n PORTABLE AP CHEST RADIOGRAPH: Clear.")["findings"] == "Clear."
    assert extract_mit("x\n CLINICAL HISTORY: Cough.")["history"] == "Cough."
    assert extract_mit("x\n WET READ: Clear.")["wet read"] == "Clear."


def test_mit_lets_the_last_of_one_name_win_and_drops_empty_ones():
    assert extract_mit("x\n IMPRESSION: First.\n IMPRESSION: Second.\n IMPRESSION: \n ")["impression"] == "Second."
    assert "impression" not in extract_mit("x\n FINDINGS: Clear.\n IMPRESSION: \n ")


def test_mit_takes_no_header_on_the_line_of_another():
    assert extract_mit("x\n FINDINGS: \n IMPRESSION: Clear.")["impression"] == "Clear."


def test_mit_takes_no_header_after_one_whose_colon_ends_its_line():
    """As section_parser.py: the next line is the header's own, so that the header there is part of the text."""
    assert extract_mit("x\n FINDINGS:\n IMPRESSION: Clear.") == {"preamble": "x", "findings": "IMPRESSION: Clear."}
    later = extract_mit("x\n FINDINGS:\n IMPRESSION: Clear.\n COMPARISON: None.")
    assert later == {"preamble": "x", "findings": "IMPRESSION: Clear.", "comparison": "None."}


def test_mit_makes_a_last_paragraph_where_both_are_absent():
    sections = extract_mit("x\n INDICATION: Cough.\n \n Lungs are clear.\n \n Heart is normal.")
    assert sections["last_paragraph"] == "Lungs are clear.\n \n Heart is normal."
    assert sections["indication"] == "Cough."


def test_mit_calls_a_report_without_header_full_report():
    assert extract_mit("Lungs are clear.") == {"full report": "Lungs are clear."}
