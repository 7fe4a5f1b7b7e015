import csv
import gzip
import json

import numpy as np
import pytest

from metric_oracle.base.errors import InputError
from metric_oracle.corpora.tables import read_table
from metric_oracle.raters.ratings import Ratings, match_pairs, read_ratings

CANDIDATES = ["bleu", "s_emb", "bertscore", "radgraph"]
SMALL = "pair_id,rater,category,significant,count\n" + "".join(
    f"{pair},{rater},{category},{significant},{len(pair) * significant}\n"
    for pair in ("a", "bb")
    for rater in ("x", "y")
    for category in (1, 2)
    for significant in (0, 1)
)


def write(folder, content, name="r.csv"):
    path = folder / name
    path.write_text(content, encoding="utf-8")
    return path


def same(a: Ratings, b: Ratings) -> bool:
    names = ("pairs", "studies", "candidates", "raters", "categories")
    return all(getattr(a, name) == getattr(b, name) for name in names) and np.array_equal(a.counts, b.counts)


def rows_of(path):
    with path.open(newline="") as file:
        return list(csv.reader(file))


def test_both_layouts_of_one_design(rated):
    long, green = read_ratings(rated.long), read_ratings(rated.green)
    assert same(long, green)
    assert long.pairs[:5] == ["0/bleu", "0/s_emb", "0/bertscore", "0/radgraph", "1/bleu"]
    assert long.studies == [str(s) for s in range(50) for _ in range(4)]
    assert long.candidates == CANDIDATES * 50
    assert (long.raters, long.categories) == (list("012345"), list("123456"))
    assert np.array_equal(long.counts.reshape(rated.counts.shape), rated.counts)
    assert long.counts.dtype == np.int64
    assert np.array_equal(long.errors("total"), rated.counts.sum(axis=-1).reshape(200, 6, 6))
    assert np.array_equal(long.errors("significant"), rated.counts[..., 1].reshape(200, 6, 6))
    total = rated.counts.sum()
    assert long.source == f"counts by row: 200 pairs, 50 studies, 6 raters, 6 error categories, {total:,} errors"


@pytest.mark.parametrize("truth", [("True", "False"), ("TRUE", "false"), ("1", "0"), ("1.0", "0.0"), ("Yes", "no")])
def test_columns_and_rows_in_any_order(rated, tmp_path, truth):
    header, *rows = rows_of(rated.long)
    rng = np.random.default_rng(1)
    order = rng.permutation(len(header))
    lines = [",".join(["", *(header[i] for i in order)])]
    for n, row in enumerate(np.array(rows)[rng.permutation(len(rows))]):
        row[4] = truth[0] if row[4] == "True" else truth[1]
        row[5] = f"{row[5]}.0"
        lines.append(",".join([str(n), *row[order]]))
    path = tmp_path / "shuffled.csv.gz"
    path.write_bytes(gzip.compress("\n".join(lines).encode()))
    assert same(read_ratings(path), read_ratings(rated.long))


def test_green_table_saved_again_by_pandas(rated, tmp_path):
    header, *rows = rows_of(rated.green)
    renamed = [*header[:10], *(f"{name}.1" for name in header[10:16]), *header[16:]]
    lines = [",".join(["Unnamed: 0", *renamed]), *(f"{n}," + ",".join(row) for n, row in enumerate(rows))]
    assert same(read_ratings(write(tmp_path, "\n".join(lines))), read_ratings(rated.long))


def test_plain_tables(tmp_path):
    """As RadEvalX: pairs without candidate types, two raters, eight categories."""
    counts = np.random.default_rng(2).integers(0, 3, (30, 2, 8, 2))
    records = [
        {"uid": i, "study_id": f"CXR{p}", "radiologist": "AB"[r], "category": c + 1, "significance": bool(s),
         "errors": int(counts[p, r, c, s])}
        for i, (p, r, c, s) in enumerate(np.ndindex(counts.shape))
    ]  # fmt: skip
    ratings = read_ratings(write(tmp_path, json.dumps(records), "r.json"))
    assert ratings.pairs == ratings.studies == sorted(f"CXR{p}" for p in range(30))
    assert ratings.candidates is None
    assert ratings.raters == ["A", "B"]
    order = [int(pair.removeprefix("CXR")) for pair in ratings.pairs]
    assert np.array_equal(ratings.counts, counts[order])


def test_pairs_with_their_own_ids(tmp_path):
    content = SMALL.replace("pair_id,", "pair_id,study_id,system,").replace("\na,", "\na,s50000007,new,")
    ratings = read_ratings(write(tmp_path, content.replace("\nbb,", "\nbb,s50000007,10,")))
    assert ratings.pairs == ["bb", "a"]  # by study, then candidate type
    assert ratings.studies == ["50000007"] * 2
    assert ratings.candidates == ["10", "new"]
    assert ratings.counts[:, 0, 0].tolist() == [[0, 2], [0, 1]]


def test_texts_of_the_samples(rated):
    ratings = read_ratings(rated.long, samples=rated.samples)
    assert ratings.study_ids is not None
    assert ratings.study_ids[:5] == ["50000000"] * 4 + ["50000001"]
    assert ratings.references is not None
    assert ratings.references[4] == "Made  up\n 1."
    assert ratings.predictions is not None
    texts = rows_of(rated.samples)
    assert ratings.predictions[4 * 7 + 3] == texts[8][texts[0].index("radgraph")]
    fewer = ratings.without_identical()
    assert len(fewer.pairs) == 200 - 11
    left = [i for i, pair in enumerate(ratings.pairs) if pair not in fewer.pairs]
    assert all(ratings.predictions[i] == f"Made up {ratings.studies[i]}." for i in left)
    assert not ratings.counts[left].any()
    assert np.array_equal(fewer.counts, np.delete(ratings.counts, left, axis=0))
    assert fewer.study_ids == [study for i, study in enumerate(ratings.study_ids) if i not in left]


def test_texts_of_a_plain_table(tmp_path):
    samples = write(tmp_path, "prediction,reference,pair\nB.,b,bb\nA. ,A.,a\n", "s.csv")
    ratings = read_ratings(write(tmp_path, SMALL), samples=samples)
    assert (ratings.references, ratings.predictions) == (["A.", "b"], ["A. ", "B."])
    assert repr(ratings) == f"<Ratings: 2 pairs, {len(ratings.raters)} raters; {ratings.source}>"  # no texts
    assert ratings.without_identical().pairs == ["bb"]


def test_pairs_by_study_ids(rated, tmp_path):
    """Another tool knows the study ids of the samples file, not the row numbers."""
    ids = [(50000000 + s, name) for s in range(50) for name in CANDIDATES]
    order = np.random.default_rng(3).permutation(200)
    lines = ["origin,study_id,x", *(f"{ids[i][1]},p10/p1/s{ids[i][0]}.txt,{i}" for i in order)]
    table = read_table(write(tmp_path, "\n".join(lines)))
    rows, names = match_pairs(read_ratings(rated.green, samples=rated.samples), table)
    assert [order[row] for row in rows] == list(range(200))
    assert names == {"origin", "study_id"}


@pytest.mark.parametrize("name", ["pair_id", "pair", "id", "query_id", "study_id", "UID"])
def test_pairs_by_one_column(tmp_path, name):
    table = read_table(write(tmp_path, f"x,{name}\n1,bb\n2,a\n", "s.csv"))
    rows, names = match_pairs(read_ratings(write(tmp_path, SMALL)), table)
    assert (rows.tolist(), names) == ([1, 0], {name})


# Errors


@pytest.mark.parametrize(
    ("content", "match"),
    [
        (
            SMALL.replace("a,y,2,1,1\n", ""),
            r"r\.csv must have one row for each pair, rater, category and significance \(16\); got none for pair 'a', "
            r"rater 'y', category '2', significant \(1 absent, 0 doubled\)\. Repair the file: no error is a row",
        ),
        (
            SMALL + "bb,x,1,0,0\n",
            r"got 2 rows for pair 'bb', rater 'x', category '1', insignificant \(0 absent, 1 doubled\)\.",
        ),
        (SMALL.replace("rater", "who"), r"got none for rater in .*r\.csv\. Name it like rater_index\.$"),
        (
            SMALL.replace("pair_id", "thing").replace(",count", ",n"),
            r"ratings must have a column for each of pair or study, .*; got none for pair, count in .*pair_id or like ",
        ),
        (
            SMALL.replace("category", "rater_id"),
            r"r\.csv must have one column for the rater; got 'rater', 'rater_id'\.",
        ),
        (
            SMALL.replace("a,x,1,0,0", "a,x,1,0,-1"),
            r"column 'count' of .*r\.csv must hold a whole number from 0 in every row; got none in row 1\.",
        ),
        (SMALL.replace("a,x,1,1,1", "a,x,1,1,1.5"), r"must hold a whole number from 0 .* in row 2\."),
        (SMALL.replace("a,x,1,1,1", "a,x,1,1,"), r"must hold a whole number from 0 .* in row 2\."),
        (SMALL.replace("a,x,1,1,1", "a,x,1,1,nan"), r"must hold a whole number from 0 .* in row 2\."),
        (SMALL.replace("a,x,1,1,1", "a,x,1,maybe,1"), r"'significant' of .* must hold true or false .* in row 2\."),
        (
            SMALL.replace("a,x,1,1,1", "a,,1,1,1"),
            r"there is no id in row 2 of column 'rater' of ",
        ),
        (SMALL.splitlines()[0] + "\n", r"ratings must have rows; got none in .*r\.csv\. Fetch the file again\.$"),
        (
            SMALL.replace("pair_id,", "pair_id,study_id,").replace("\na,", "\na,1,").replace("\nbb,", "\na,2,"),
            r"every pair of .*r\.csv must be of one study and one candidate type; got several for 'a'\. Repair",
        ),
    ],
)
def test_broken_tables(tmp_path, content, match):
    with pytest.raises(InputError, match="^read_ratings: .*" + match):
        read_ratings(write(tmp_path, content))


def test_a_pair_without_any_row(rated, tmp_path):
    lines = [line for line in rated.long.read_text().splitlines() if not line.startswith("7,s_emb,")]
    match = r"\(14,400\); got none for pair '7/s_emb', rater '0', category '1', insignificant \(72 absent, 0 doubled\)"
    with pytest.raises(InputError, match=match):
        read_ratings(write(tmp_path, "\n".join(lines)))


@pytest.mark.parametrize(
    ("old", "new", "match"),
    [
        (
            "5,insig_mean",
            "6,insig_mean",
            r"ratings must have the same raters before .*; got 6 and 6 columns, or other na",
        ),
        (",0,1,2,3,4,5,", ",0,1,2,3,4,4,", r"an id occurs more than once in the raters of .*: '4'\."),
        (
            "sig_mean_errors",
            "mean",
            r"ratings must have a column for each of .*; got none for rater, significance, count",
        ),
    ],
)
def test_broken_green_tables(rated, tmp_path, old, new, match):
    header, _, rest = rated.green.read_text().partition("\n")
    with pytest.raises(InputError, match="^read_ratings: .*" + match):
        read_ratings(write(tmp_path, f"{header.replace(old, new)}\n{rest}"))


def test_broken_samples(rated, tmp_path):
    text = rated.samples.read_text()
    match = r"samples must have one row for each study_number from 0; got 49 rows in .*s\.csv for 50 studies\. Use the"
    with pytest.raises(InputError, match=match):
        read_ratings(rated.long, samples=write(tmp_path, text.rpartition("50000049")[0], "s.csv"))
    match = r"an id occurs more than once in the studies of .*s\.csv: '50000001'"
    with pytest.raises(InputError, match=match):
        read_ratings(rated.long, samples=write(tmp_path, text.replace("50000002", "50000001"), "s.csv"))
    match = (
        r"samples must have the columns gt_report and one for each candidate type, or the pair, reference and predic"
    )
    with pytest.raises(InputError, match=match):
        read_ratings(rated.long, samples=write(tmp_path, text.replace("s_emb", "chexbert"), "s.csv"))
    with pytest.raises(InputError, match=r"there is no file .*none\.csv\. Check"):
        read_ratings(rated.long, samples=tmp_path / "none.csv")


def test_identical_pairs_need_texts(tmp_path):
    ratings = write(tmp_path, SMALL)
    match = r"samples must be given to find identical pairs; got None\. Add the file with the texts as `samples`, such"
    with pytest.raises(InputError, match=match):
        read_ratings(ratings).without_identical()
    samples = write(tmp_path, "prediction,reference,pair\n,b,bb\nA.,A.,a\n", "s.csv")
    match = r"samples must hold both texts of every pair to find identical ones; got 1 without, first 'bb'\."
    with pytest.raises(InputError, match=match):
        read_ratings(ratings, samples=samples).without_identical()


@pytest.mark.parametrize(
    ("content", "match"),
    [
        (
            "pair_id,x\na,1\nbb,2\nc,3\n",
            r"must be among the rated ones; got 1 that are not, first 'c'\. Repair the file",
        ),
        ("pair_id,x\na,1\n", r"must be all the rated ones; got none for 1 of them, first 'bb'\. Repair the file"),
        (
            "pair_id,x\n8,1\n9,2\n",
            r"must contain ids of the rated pairs; got none of 2: ids there are like '8', rated pairs like 'a'\. Join",
        ),
        ("pair_id,x\na,1\na,2\n", r"an id occurs more than once in .*: 'a'"),
        ("x,y\na,1\nbb,2\n", r"s\.csv must say the pair of each row by a column pair_id, .*; got columns 'x', 'y'\."),
        (
            "id,query_id\na,1\nbb,2\n",
            r"s\.csv must say the pair .*; got columns 'id', 'query_id'\. Add or rename one\.$",
        ),
    ],
)
def test_tables_of_other_pairs(tmp_path, content, match):
    ratings = read_ratings(write(tmp_path, SMALL))
    with pytest.raises(InputError, match="^.*" + match):
        match_pairs(ratings, read_table(write(tmp_path, content, "s.csv")))


def test_pairs_that_study_and_candidate_do_not_tell_apart(tmp_path):
    content = SMALL.replace("pair_id,", "pair_id,study_id,system,").replace("\na,", "\na,1,new,")
    ratings = read_ratings(write(tmp_path, content.replace("\nbb,", "\nbb,1,new,")))
    table = read_table(write(tmp_path, "study_id,system,x\n1,new,3\n", "s.csv"))
    match = r"an id occurs more than once in ratings joined by study and candidate type: '1/new'"
    with pytest.raises(InputError, match=match):
        match_pairs(ratings, table)
