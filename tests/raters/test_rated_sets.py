import numpy as np
import pytest

from metric_oracle.base.errors import InputError
from metric_oracle.corpora.tables import numbers_of, series_of
from metric_oracle.raters.grades import AVERAGE, LINES, MAXIMUM, Grades
from metric_oracle.raters.rated_sets import read_rated_set
from metric_oracle.raters.ratings import Ratings, read_ratings

V0 = "id,indication,impression_original,impression_edited,score,annotator,source"
ROWS = [
    "s1,why,First line.,[no edit],No error,0,XREM",
    "s1,why,Second line.,[delete],Urgent error,0,XREM",
    "s1,why,,Third line.,Not actionable,0,XREM",
    "s1,why,First line.,[no edit],No error,1,XREM",
    "s2,why,Fourth line.,Fifth line.,Emergent error,0,Expert",
    "s2,why,Sixth line.,[no edit],No error,1,CXRRepair",
]


def write(tmp_path, lines, name="r.csv"):
    path = tmp_path / name
    path.write_text("\n".join(lines) + "\n")
    return path


def test_refisco(tmp_path):
    found = read_rated_set(write(tmp_path, [V0, *ROWS]))
    assert isinstance(found, Grades)
    assert found.pairs == ["s1/XREM/0", "s1/XREM/1", "s2/Expert/0", "s2/CXRRepair/1"]
    assert found.studies == ["s1", "s1", "s2", "s2"]
    assert found.candidates == ["XREM", "XREM", "Expert", "CXRRepair"]
    assert found.kinds == (LINES, MAXIMUM, AVERAGE)
    assert found.by_rater(LINES).tolist() == [[2, 0, 1, 0]]
    assert found.by_rater(MAXIMUM).tolist() == [[3, 0, 4, 0]]
    assert found.by_rater(AVERAGE) == pytest.approx(np.array([[4 / 3, 0, 4, 0]]))
    assert found.predictions == ["First line. Second line.", "First line.", "Fourth line.", "Sixth line."]
    assert found.references == ["First line. Third line.", "First line.", "Fifth line.", "Sixth line."]
    assert found.source == "ReFiSco: 4 annotated reports, 2 studies, 6 lines"
    assert found.without_identical().pairs == ["s1/XREM/0", "s2/Expert/0"]
    fewer = found.subset(np.array([False, True, True, False]))
    assert fewer.by_rater(MAXIMUM).tolist() == [[0, 4]]


def test_refisco_version_1(tmp_path):
    """Its corrected line is blank where nothing was corrected; rows of a report need not lie together."""
    header = "data_id,subject_id,study_id,report_type,report_text,original_line,corrected_line,"
    header += "error_clinical_severity,comments,annotator_id"
    rows = [
        "0,9,s50000001,ai,x,One.,,0,,7",
        "1,9,s50000002,ai,x,Two.,Three.,2.0,,7",
        "0,9,s50000001,ai,x,Four.,[delete],3,,7",
    ]
    found = read_rated_set(write(tmp_path, [header, *rows]))
    assert found.studies == ["50000001", "50000002"]
    assert found.by_rater(MAXIMUM).tolist() == [[3, 2]]
    assert found.predictions == ["One. Four.", "Two."]
    assert found.references == ["One.", "Three."]


def test_one_number_a_pair(tmp_path):
    lines = ["pair_id,study_id,rater,quality,reference,prediction"]
    lines += [f"p{p},s{p // 2},{r},{p + 0.5 * r},R{p // 2},P{p}" for p in (2, 0, 1, 3) for r in (1, 0)]
    found = read_rated_set(write(tmp_path, lines))
    assert (found.pairs, found.raters) == (["p2", "p0", "p1", "p3"], ["0", "1"])
    assert found.studies == ["s1", "s0", "s0", "s1"]
    assert found.by_rater("quality").tolist() == [[-2, 0, -1, -3], [-2.5, -0.5, -1.5, -3.5]]  # larger is worse
    assert found.references == ["R1", "R0", "R0", "R1"]
    assert found.predictions == ["P2", "P0", "P1", "P3"]
    found = read_rated_set(write(tmp_path, ["study_id,candidate_type,errors", "a,x,1", "a,y,2.5", "b,x,0"]))
    assert (found.pairs, found.raters) == (["a/x", "a/y", "b/x"], ["all"])
    assert found.by_rater("errors").tolist() == [[1, 2.5, 0]]
    assert found.references is None


def test_samples_bring_the_texts(tmp_path):
    samples = write(tmp_path, ["pair_id,reference,prediction", "b,same  text,same text", "a,one,two"], "samples.csv")
    found = read_rated_set(write(tmp_path, ["pair_id,errors", "a,1", "b,2"]), samples=samples)
    assert found.references == ["one", "same  text"]
    assert found.differing().tolist() == [True, False]


def test_counted_errors_are_read_as_before(rated):
    found = read_rated_set(rated.long, samples=rated.samples)
    assert isinstance(found, Ratings)
    assert np.array_equal(found.counts, read_ratings(rated.long).counts)
    total = rated.counts.sum(axis=(3, 4)).reshape(200, 6)
    assert np.array_equal(found.by_rater("total"), total.T)


CATEGORIES = ("one", "two", "three", "four", "five", "six", "seven", "eight")


@pytest.mark.parametrize("rater", ["annotator", None])
def test_radevalx(tmp_path, rater):
    """Its columns as scripts that read it name them: a row a report and significance, categories in words."""
    names = "AB" if rater else "A"
    counts = np.random.default_rng(3).integers(0, 3, (5, len(names), 8, 2))
    lines = [",".join(["report_id", *([rater] if rater else []), "error_type", *CATEGORIES])]
    for p, r, s in np.ndindex(5, len(names), 2):
        kind = ("insignificant", "Significant")[s]
        lines.append(",".join([f"CXR{p}", *(names[r] if rater else []), kind, *map(str, counts[p, r, :, s])]))
    found = read_ratings(write(tmp_path, lines))
    assert (found.pairs, found.raters) == ([f"CXR{p}" for p in range(5)], list(names) if rater else ["all"])
    assert found.categories == list("12345678")
    assert np.array_equal(found.counts, counts)
    assert found.source.startswith("RadEvalX's columns of categories: 5 pairs, 5 studies, ")


@pytest.mark.parametrize(
    ("lines", "match"),
    [
        ([V0, *ROWS, "s3,why,a,b,Bad,0,XREM"], r"column 'score' of .*r\.csv must hold No error, .*, or 0 to 4, in "
         r"every row; got none in row 7\. Repair it\.$"),
        ([V0], r"r\.csv must have rows; got none\. Fetch the file again\.$"),
        (["pair_id,errors,quality", "a,1,2"], r"must have errors or quality; got both columns\. Keep or rename one\.$"),
        (["rater,errors", "a,1"], r"must say the pair of each row by a column pair_id, .*; got columns 'rater'"),
        (["pair_id,rater,errors", "a,1,1", "a,2,1", "b,1,0"], r"must have one row for each pair and rater \(2 x 2\); "
         r"got 3\. Complete it: an absent grade is no grade\.$"),
        (["pair_id,errors", "a,1", "b,word"], r"column 'errors' must hold a finite number in every row; got "
         r"none in row 2 of .*r\.csv\. Complete the column, or leave the row out\.$"),
        (["pair_id,errors", "a,1", "b,inf"], r"must hold a finite number in every row; got none in row 2"),
        (["pair_id,study_id,rater,errors", "a,s,1,1", "a,t,2,1"], r"the study of each pair in .* must be the same in "
         r"all its rows; got two for pair 'a', the second in row 2\. Repair it\.$"),
        (["pair_id,errors", "a,1", "a,2"], r"an id occurs more than once in the rows of .*: "),
    ],
)  # fmt: skip
def test_refused(tmp_path, lines, match):
    with pytest.raises(InputError, match=rf"^read_rated_set: .*{match}"):
        read_rated_set(write(tmp_path, lines))


def test_radevalx_refused(tmp_path):
    header = "report_id,error_type," + ",".join(CATEGORIES)
    zeros = ",0" * 8
    for lines, match in (
        (["a,significant" + zeros], r"must have one row for each pair, rater, category and significance"),
        (["a,major" + zeros], r"column 'error_type' of .* must hold significant or insignificant in every row; got "
         r"none in row 1\. Repair it\.$"),
        (["a,significant" + ",0" * 7 + ","], r"column 'eight' of .* must hold a whole number from 0 in every row"),
    ):  # fmt: skip
        with pytest.raises(InputError, match=match):
            read_ratings(write(tmp_path, [header, *lines]))


def test_cells_as_numbers():
    assert numbers_of(series_of("n", [1, "2.5", " 3 ", np.float32(0.5)])).to_list() == [1.0, 2.5, 3.0, 0.5]
    assert numbers_of(series_of("n", [None, True, "", "word", [], np.nan, "nan"])).null_count() == 7
    assert numbers_of(series_of("n", [10**400])).to_list() == [np.inf]
