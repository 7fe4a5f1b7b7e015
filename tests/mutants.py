"""Plant one mutant at a time in a copy of the repository and run the tests that concern it: which survive?

    python tests/mutants.py [--copy FOLDER] [--timeout SECONDS] [WORD ...]

Words choose the mutants whose path or name holds one of them. Writes a Markdown table to stdout, a line as each ends.
A survivor is a test that is lacking, or code that nothing needs. Results: MUTANTS.md.
"""

import argparse
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

REPOSITORY = Path(__file__).parents[1]


class Mutant(NamedTuple):
    """A change of one place of a module, and the arguments of pytest that choose the tests that concern it."""

    path: str  # below metric_oracle
    name: str
    old: str
    new: str
    tests: str


MUTANTS = [
    # ---- indexes ----
    Mutant(
        "indexes/lists.py",
        "rows of a unit in any order",
        'np.argsort(document_of_row, kind="stable")',
        "np.argsort(document_of_row)",
        "indexes/test_vectors.py",
    ),
    Mutant(
        "indexes/features.py",
        "one feature more than ids can tell apart",
        "if n_features > MOST_FEATURES:",
        "if n_features > MOST_FEATURES + 1:",
        "indexes/test_index.py -k more_features",
    ),
    Mutant(
        "indexes/features.py",
        "table of skips of another length is taken",
        "len(features.skip_slot), len(features.post_unit)",
        "n_features, len(features.post_unit)",
        "indexes/test_index.py -k lengths",
    ),
    Mutant(
        "indexes/manifest.py",
        "names may climb out of the folder",
        'not Path(name).is_absolute() and ".." not in Path(name).parts',
        "not Path(name).is_absolute()",
        "indexes/test_manifest.py",
    ),
    Mutant(
        "indexes/manifest.py",
        "empty files are whole",
        'entry["bytes"] > 0',
        'entry["bytes"] >= 0',
        "indexes/test_manifest.py",
    ),
    Mutant(
        "base/files.py",
        "half a file stays next to its place",
        "        if file != path:\n            file.unlink(missing_ok=True)\n",
        "",
        "indexes/test_manifest.py",
    ),
    Mutant(
        "indexes/manifest.py",
        "notes know a file by its size alone",
        "checksum([wanted, *self._stamps[name]])",
        "checksum([wanted, self._stamps[name][0]])",
        "indexes/test_manifest.py",
    ),
    Mutant(
        "base/job.py",
        "pieces of other inputs are kept",
        "if made_of.get(name) != piece.made_of",
        "if name not in made_of",
        "tables/test_study.py -k finished_steps",
    ),
    Mutant(
        "base/job.py",
        "a claimed piece may be made of other inputs",
        " or self.pieces[name].made_of != made_of]",
        "]",
        "test_job.py -k other_inputs",
    ),
    Mutant(
        "base/job.py",
        "a finished piece may be damaged",
        "if sha256(self.folder / name) == piece.sha256:",
        "if (self.folder / name).exists():",
        "test_job.py -k damaged",
    ),
    Mutant(
        "base/job.py",
        "files that are not on record are overwritten",
        'raise _foreign(folder, title, argument, f"it holds {name}")',
        "pass",
        "test_job.py -k foreign",
    ),
    Mutant(
        "base/job.py",
        "pieces of a record may be outside of its folder",
        "            _check_inside(pieces)\n",
        "",
        "test_job.py -k inside",
    ),
    Mutant(
        "indexes/build.py",
        "distinct texts name their last row",
        "first[distinct_id[::-1]] = np.arange(len(texts))[::-1]",
        "first[distinct_id] = np.arange(len(texts))",
        "indexes/test_index.py -k round_trip",
    ),
    Mutant(
        "indexes/build.py",
        "digest forgets which representation an array is",
        "hasher.update(kind.encode())",
        "pass",
        "indexes/test_index.py -k other_inputs",
    ),
    Mutant(
        "indexes/build.py",
        "digest forgets the storage of token states",
        "opened.storage.name, opened.baseline",
        "opened.baseline",
        "indexes/test_bertscore.py -k what_makes",
    ),
    Mutant(
        "indexes/build.py",
        "a folder without lock is an earlier build's",
        "if not foreign and (not of_builds or LOCK in of_builds):",
        "if not foreign:",
        "indexes/test_index.py -k 'without_a_lock or in_the_place'",
    ),
    Mutant(
        "base/files.py",
        "the folder itself is not synced",
        'for path in (*folder.rglob("*"), folder):',
        'for path in folder.rglob("*"):',
        "indexes/test_index.py -k power_cut",
    ),
    Mutant(
        "indexes/store.py",
        "arrays of odd bytes move the next ones off their line",
        "-(-arrays[i].values.nbytes // 8) * 8",
        "arrays[i].values.nbytes",
        "indexes/test_vectors.py -k cache",
    ),
    Mutant(
        "base/sealed.py",
        "hash of strings forgets where they end",
        "lengths.update((ptr[1:] - ptr[:-1]).data)",
        'lengths.update(b"")',
        "indexes/test_store.py",
    ),
    Mutant(
        "indexes/store.py",
        "offsets may begin beyond 0",
        "offsets[0] != 0 or ",
        "",
        "indexes/test_store.py",
    ),
    Mutant(
        "indexes/temporal.py",
        "_ joins words",
        r"[\n_-]+",
        r"[\n-]+",
        "kernels/test_temporal.py",
    ),
    Mutant(
        "indexes/temporal.py",
        "a slash parts words",
        '_DROPPED.sub("", ',
        '_DROPPED.sub(" ", ',
        "kernels/test_temporal.py",
    ),
    Mutant(
        "indexes/embeddings.py",
        "prepared unit vectors are divided once more",
        "values[used[chunk]] if reports.attached[kind].are_unit else unit_vectors(values[used[chunk]])",
        "unit_vectors(values[used[chunk]])",
        "indexes/test_vectors.py",
    ),
    Mutant(
        "indexes/labels.py",
        "manifest always says uncertain is positive",
        "return {self.setting: self.meaning}",
        'return {"uncertain": "positive"}',
        "indexes/test_index.py -k uncertain",
    ),
    Mutant(
        "indexes/lists.py",
        "used vectors in the order of the file",
        "order = np.argsort(first)",
        "order = np.arange(len(first))",
        "indexes/test_vectors.py",
    ),
    # ---- retrieval ----
    Mutant(
        "retrieval/pool.py",
        "growth of the last block, not the most",
        "self._growth = max(self._growth, (resident()",
        "self._growth = max((resident()",
        "retrieval/test_search.py -k 'pages or limit or forgotten'",
    ),
    Mutant(
        "retrieval/pool.py",
        "progress counts distinct queries",
        "total = n_queries * done // n if n else 0",
        "total = done",
        "retrieval/test_search.py -k progress",
    ),
    Mutant(
        "retrieval/pool.py",
        "blocks go on after an error of the thread that asks",
        "_drop(left)  # after an error",
        "pass  # after an error",
        "retrieval/test_search.py -k one_block",
    ),
    Mutant(
        "retrieval/pool.py",
        "blocks go on after an error of another thread",
        "failed.append(error)\n            _drop(left)",
        "failed.append(error)",
        "retrieval/test_search.py -k one_block",
    ),
    Mutant(
        "retrieval/pool.py",
        "the first of two searches to end frees BLAS",
        "            if not _LIMITERS:\n                last.restore",
        "            if True:\n                last.restore",
        "retrieval/test_search.py -k 'products or overlapping'",
    ),
    Mutant(
        "retrieval/result_table.py",
        "rows of score 0 in the order of a partition",
        "np.sort(np.partition(row_id, k - 1)[:k])",
        "np.partition(row_id, k - 1)[:k]",
        "retrieval/test_search.py -k 'rows_of_score_0'",
    ),
    Mutant(
        "retrieval/result_table.py",
        "the fall-back is listed twice",
        "answers.rows[q][answers.rows[q] != row]",
        "answers.rows[q]",
        "retrieval/test_search.py -k 'fallback or fallen'",
    ),
    Mutant(
        "retrieval/result_table.py",
        "lowest row of the most frequent text only if rows are sorted",
        "rows = np.sort(row_id)",
        "rows = row_id",
        "retrieval/test_search.py -k 'fallback or fallen'",
    ),
    Mutant(
        "retrieval/checks.py",
        "dots after all of three names",
        '", ..." if len(lacking) > 3',
        '", ..." if len(lacking) >= 3',
        "retrieval/test_search.py -k without_what",
    ),
    Mutant(
        "retrieval/verification.py",
        "one row twice passes",
        "if len(set(rows)) < len(rows) or order != sorted(order):",
        "if order != sorted(order):",
        "retrieval/test_verification.py -k 'lost_or_doubled or changed_order or listed_twice'",
    ),
    Mutant(
        "retrieval/verification.py",
        "ties of the last score may be fewer than its rows",
        "max(ties[-1], least) for score",
        "ties[-1] for score",
        "retrieval/test_verification.py -k ties",
    ),
    Mutant(
        "base/progress.py",
        "progress may end before all pairs",
        "done - reported >= total / 100 or done == total",
        "done - reported >= total / 100",
        "retrieval/test_verification.py -k 'altered_value or right_results'",
    ),
    Mutant(
        "retrieval/brute_force.py",
        "candidates within the error of products are lost",
        "signed[documents] >= last - 2 * error",
        "signed[documents] >= last",
        "retrieval/test_verification.py -k of_products",
    ),
    Mutant(
        "retrieval/brute_force.py",
        "a document without words has a score",
        "wordless = lengths[first:last] == 2",
        "wordless = lengths[first:last] == 1",
        "retrieval/test_verification.py -k brute_force_of",
    ),
    Mutant(
        "retrieval/expectation.py",
        "quantiles one row too high where p divides the rows",
        "max(math.ceil(n_rows * p), 1)",
        "min(math.floor(n_rows * p) + 1, n_rows)",
        "retrieval/test_baselines.py -k 'expectation_is and bleu-1 or duplicates_weigh'",
    ),
    Mutant(
        "retrieval/expectation.py",
        "histogram drops scores on its upper edge",
        "counts[n - 1 :].sum()",
        "counts[n - 1]",
        "retrieval/test_baselines.py -k 'bins or duplicates_weigh'",
    ),
    Mutant(
        "retrieval/baselines.py",
        "draws go by documents, not by rows",
        "scorable = np.sort(row_id)",
        "scorable = row_id",
        "retrieval/test_baselines.py -k 'random and not embedding'",
    ),
    Mutant(
        "retrieval/baselines.py",
        "a draw depends on the number of draws",
        "size=(draws, n)).T",
        "size=(n, draws))",
        "retrieval/test_baselines.py -k 'reproducible'",
    ),
    Mutant(
        "findings/results.py",
        "U+2028 ends a line of JSON",
        'raw.decode().split("\\n")',
        "raw.decode().splitlines()",
        "retrieval/test_results.py",
    ),
    Mutant(
        "base/sealed.py",
        "the table takes its place before its signature",
        "                first.replace(beside)\n",
        "                pass\n",
        "retrieval/test_results.py",
    ),
    Mutant(
        "findings/results.py",
        "mean of all answers",
        '[self.table["rank"].to_numpy() == 1]',
        "",
        "retrieval/test_results.py tests/test_api.py -k 'mean or repr or shown'",
    ),
    Mutant(
        "retrieval/weights.py",
        "true is a weight",
        "if isinstance(value, bool) or not isinstance(value, int | float):",
        "if not isinstance(value, int | float):",
        "retrieval/test_composite.py -k 'weights or terms or number or none'",
    ),
    # ---- kernels: each is compiled anew ----
    Mutant(
        "kernels/topk/cpu.py",
        "a tie with the k-th row is turned away",
        "    if score < threshold(best, k):\n        return",
        "    if score <= threshold(best, k):\n        return",
        "kernels/test_bounds.py -k documents_inserted",
    ),
    Mutant(
        "kernels/topk/cpu.py",
        "rows of a new least score add to those of the old",
        "    if n == 0 or score < best.score[0]:\n        best.state[2] = n_rows",
        "    if n == 0 or score < best.score[0]:\n        best.state[2] += n_rows",
        "kernels/test_bounds.py -k documents_inserted",
    ),
    Mutant(
        "kernels/topk/cpu.py",
        "tied documents are listed one after the other",
        "        sort(lowest[:n])\n",
        "",
        "kernels/test_bounds.py -k documents_inserted",
    ),
    Mutant(
        "kernels/topk/cpu.py",
        "ties are counted among listed rows",
        "out_ties[filled] = rows",
        "out_ties[filled] = n",
        "kernels/test_bounds.py -k documents_inserted",
    ),
    Mutant(
        "kernels/topk/cpu.py",
        "one least document leaves of several",
        "        while best.score[0] == least:  # never all: k rows are left",
        "        if best.score[0] == least:",
        "kernels/test_bounds.py -k documents_inserted",
    ),
    Mutant(
        "kernels/topk/cpu.py",
        "a worse document may stand below a better one",
        "        if score <= best.score[child]:\n            break",
        "        if score <= best.score[2 * i + 1]:\n            break",
        "kernels/test_bounds.py -k documents_inserted",
    ),
    Mutant(
        "kernels/_build.py",
        "an empty list equals any with its slot",
        "    return p == n and ptr[j + 1] - ptr[j] == n",
        "    return p == n",
        "kernels/test_overlap.py -k empty_list",
    ),
    Mutant(
        "kernels/_build.py",
        "a grown table forgets the last key",
        "for i in range(n):  # compiled",
        "for i in range(n - 1):  # compiled",
        "indexes/test_index.py -k of_the_definition",
    ),
    Mutant(
        "kernels/_build.py",
        "the n-gram that finds the table full is left out",
        "return u, p, n",
        "return u, p + 1, n",
        "indexes/test_index.py -k of_the_definition",
    ),
    Mutant(
        "kernels/_build.py",
        "occurrences go on in the next report",
        "times[g] = times[g] + 1 if seen_in[g] == u else 0",
        "times[g] = times[g] + 1",
        "indexes/test_index.py -k of_the_definition",
    ),
    Mutant(
        "kernels/_build.py",
        "the third occurrence is the same feature as the second",
        "before[gram[p]] - feature",
        "before[gram[p]] + 1",
        "indexes/test_index.py -k of_the_definition",
    ),
    Mutant(
        "kernels/_build.py",
        "a cell begins behind its first unit",
        "while bucket <= bucket_of_document[post_unit[p]]:",
        "while bucket < bucket_of_document[post_unit[p]]:",
        "kernels/test_overlap.py -k cells_begin",
    ),
    Mutant(
        "kernels/_build.py",
        "of the cells behind a list only the next one is noted",
        "skip[skip_slot[v], bucket:] = ",
        "skip[skip_slot[v], bucket] = ",
        "kernels/test_overlap.py -k cells_begin",
    ),
    Mutant(
        "kernels/_build.py",
        "features of an earlier range are put into this one",
        "            if 0 <= v < len(cursor):",
        "            if v < len(cursor):",
        "kernels/test_overlap.py -k cells_begin",
    ),
    Mutant(
        "kernels/_sort.py",
        "the last right child of a heap is never the greatest",
        "if child + 1 < n and values",
        "if child + 2 < n and values",
        "kernels/test_sort.py",
    ),
    Mutant(
        "kernels/_overlap.py",
        "the lower bound is the upper one",
        "        if values[middle] < x:",
        "        if values[middle] <= x:",
        "kernels/test_overlap.py -k lower_bound",
    ),
    Mutant(
        "kernels/_overlap.py",
        "features of one query stay marked for the next pair",
        "space.first, space.last), space.mark, 0)",
        "space.first, space.last), space.mark, 1)",
        "kernels/test_overlap.py -k as_a_query",
    ),
    Mutant(
        "kernels/rouge_l/cpu.py",
        "a carry is lost between blocks",
        "            total += carry\n",
        "",
        "kernels/test_overlap.py -k subsequences",
    ),
    Mutant(
        "kernels/rouge_l/cpu.py",
        "a carry does not ripple on",
        "        carry = np.uint64(total == 0)",
        "        carry = np.uint64(0)",
        "kernels/test_overlap.py -k subsequences",
    ),
    Mutant(
        "kernels/rouge_l/cpu.py",
        "a carry may be added to a block twice",
        "            done = j + 1",
        "            done = j",
        "kernels/test_overlap.py -k subsequences",
    ),
    Mutant(
        "kernels/bleu/score.py",
        "one match is smoothed like none",
        "(1.0 if matched > 0 else 10.0)",
        "(1.0 if matched > 1 else 10.0)",
        "kernels/test_score.py",
    ),
    Mutant(
        "kernels/rouge_l/score.py",
        "coco weighs precision as recall",
        "61.0 * lcs / (25 * length + 36 * reference_length)",
        "61.0 * lcs / (36 * length + 25 * reference_length)",
        "kernels/test_score.py",
    ),
    Mutant(
        "kernels/radgraph/score.py",
        "equal means are the sum of two rounded ones",
        "(matched_a * sizes_b + matched_b * sizes_a) / (sizes_a * sizes_b)",
        "matched_a / sizes_a + matched_b / sizes_b",
        "kernels/test_score.py",
    ),
    Mutant(
        "kernels/crg/score.py",
        "an empty class takes a label from the other",
        "    negatives = max(labels - positives, 1)\n    positives = max(positives, 1)",
        "    positives = max(positives, 1)\n    negatives = max(labels - positives, 1)",
        "kernels/test_crg.py",
    ),
    Mutant(
        "kernels/topk/reference.py",
        "ties of the k-th unit are lost",
        "kept = scores >= np",
        "kept = scores > np",
        "kernels/test_bounds.py -k select_sorts",
    ),
    Mutant(
        "kernels/topk/cpu.py",
        "last right child is never the least",
        "if child + 1 < n and",
        "if child + 2 < n and",
        "kernels/test_bounds.py -k documents_inserted",
    ),
    Mutant(
        "kernels/topk/cpu.py",
        "a tie counts as one row",
        "best.state[2] += n_rows",
        "best.state[2] += 1",
        "kernels/test_bounds.py -k documents_inserted",
    ),
    Mutant(
        "kernels/topk/cpu.py",
        "only one score leaves at once",
        "while best.state[1] - best.state[2] >= k:",
        "if best.state[1] - best.state[2] >= k:",
        "kernels/test_bounds.py -k many_rows",
    ),
    Mutant(
        "kernels/chexbert_labels/cpu.py",
        "equal cosines of labels differ in their last bits",
        "np.sqrt(dot * dot / np.maximum(squares * square, 1))",
        "abs(dot) / np.sqrt(np.maximum(squares * square, 1))",
        "kernels/test_cosine.py -k labels",
    ),
    Mutant(
        "kernels/temporal/cpu.py",
        "recall by the candidate's keywords",
        "shared / np.maximum(n_reference, 1)}",
        "shared / np.maximum(n_candidate, 1)}",
        "kernels/test_temporal.py",
    ),
    Mutant(
        "kernels/cosine/cpu.py",
        "the greatest block of a tile waits twice",
        " and c != first:",
        ":",
        "kernels/test_cosine.py -k tiles",
    ),
    Mutant(
        "kernels/cosine/cpu.py",
        "a dropped document that ties is not missed",
        "if exact >= least and not _is_kept",
        "if exact > least and not _is_kept",
        "kernels/test_cosine.py -k 'dropped or below'",
    ),
    Mutant(
        "kernels/_overlap_counts.py",
        "a saturated count hides nothing",
        "if count < FULL else n_lists",
        "if count <= FULL else n_lists",
        "kernels/test_bounds.py -k saturated",
    ),
    Mutant(
        "kernels/_overlap_search.py",
        "a document is met again after its warm start",
        "                if not _contains(started, n_started, d) and not is_excluded(scorer, d):\n"
        "                    value = score(scorer, d, j)\n                    note_bound(reach",
        "                if not is_excluded(scorer, d):\n"
        "                    value = score(scorer, d, j)\n                    note_bound(reach",
        "kernels/test_bounds.py -k scored_early_is_listed_once",
    ),
    Mutant(
        "kernels/_overlap_search.py",
        "buckets above the others of a group read the lists that they lack",
        "for a, b in ((lo, first), (end, hi)):",
        "for a, b in ((lo, first), (hi, hi)):",
        "kernels/test_bounds.py -k bucket_of_a_group",
    ),
    # ---- statistics, sets of shards, the search of several queries ----
    Mutant(
        "statistics.py",
        "all ties lie below the value",
        "((resampled < value) & ~ties).mean() + ties.mean() / 2",
        "((resampled < value) & ~ties).mean() + ties.mean()",
        "test_statistics.py",
    ),
    Mutant(
        "statistics.py",
        "means without a study are divided by all studies",
        "(n * value - columns.T) / (n - 1)",
        "(n * value - columns.T) / n",
        "test_statistics.py",
    ),
    Mutant(
        "statistics.py",
        "resamples on the value count on one side",
        "(resampled >= 0).sum()",
        "(resampled > 0).sum()",
        "test_statistics.py",
    ),
    Mutant(
        "statistics.py",
        "rounding decides ties of a permutation",
        "sums[np.abs(sums) <= _TIE * n] = 0  #",
        "#",
        "test_statistics.py",
    ),
    Mutant(
        "statistics.py",
        "an interval has one more value that its test rejects",
        "ordered, place = np.sort(resampled), max(rank, 1)",
        "ordered, place = np.sort(resampled), rank + 1",
        "test_statistics.py",
    ),
    Mutant(
        "statistics.py",
        "skewed scores count as many studies",
        "return nonzero if squared == 0 else min(nonzero, len(values) / squared)",
        "return nonzero",
        "test_statistics.py",
    ),
    Mutant(
        "statistics.py",
        "a p-value on its critical value is not significant",
        "np.flatnonzero(p_values[order] <= by_rank)",
        "np.flatnonzero(p_values[order] < by_rank)",
        "raters/test_failure_modes.py",
    ),
    Mutant(
        "indexes/features.py",
        "the first feature of a corpus is none of a query's",
        "is_known = ids >= 0",
        "is_known = ids > 0",
        "indexes/test_encoding_again.py",
    ),
    Mutant(
        "indexes/features.py",
        "sizes of units must fit their lists in sum alone",
        "np.any(of_documents != np.diff(features.fwd_ptr))",
        "of_documents.sum() != np.diff(features.fwd_ptr).sum()",
        "indexes/test_index.py -k sizes_that_are_others",
    ),
    Mutant(
        "indexes/shards.py",
        "rows of several shards come shard by shard",
        'order = np.argsort(np.concatenate(places), kind="stable")',
        "order = np.arange(sum(map(len, places)))",
        "indexes/test_shards.py",
    ),
    Mutant(
        "indexes/shards.py",
        "only texts as frequent as the best of one shard are counted",
        "least = -(-best // len(shards))",
        "least = best",
        "indexes/test_shards.py",
    ),
    Mutant(
        "indexes/shard_build.py",
        "a finished shard may hold other texts of its ids",
        '(("study_id", piece.ids), ("text", piece.texts))',
        '(("study_id", piece.ids),)',
        "indexes/test_shards.py",
    ),
    Mutant(
        "indexes/crg.py",
        "prevalence counts distinct reports",
        "int(np.sum(found.positive[found.document_of_row]))",
        "int(np.sum(found.positive))",
        "kernels/test_crg.py",
    ),
    Mutant(
        "indexes/stems.py",
        "synonyms are those of the query's stems",
        "self._stems_with_synonym.get(stem_of_word, ())",
        "self._synonyms_of.get(stem_of_word, ())",
        "kernels/test_meteor_cider.py",
    ),
    Mutant(
        "retrieval/search.py",
        "the last of the queries that are one for a shard sets their limit",
        "(np.minimum if record.higher_is_better else np.maximum).at(limits, encoded.document_of_row, limit)",
        "limits[encoded.document_of_row] = limit",
        "indexes/test_encoding_again.py",
    ),
    Mutant(
        "retrieval/merge.py",
        "the reserve is that of the first shards",
        "next((part.reserve for part in parts if part.reserve is not None), None)",
        "parts[0].reserve",
        "retrieval/test_merge.py retrieval/test_shards.py indexes/test_shards.py",
    ),
    Mutant(
        "retrieval/rerank.py",
        "rounding makes a pool one larger",
        "ceil(round((len(ranks) + 1) * recall, 9))",
        "ceil((len(ranks) + 1) * recall)",
        "retrieval/test_rerank.py",
    ),
    Mutant(
        "retrieval/baselines.py",
        "a row that the metric cannot score may be the nearest",
        "    of_row[~is_scorable] = -1\n",
        "",
        "retrieval/test_baselines.py -k nearest",
    ),
    Mutant(
        "retrieval/expectation.py",
        "scores on the last edge have a bin of their own",
        "counts = np.append(counts[: n - 1], counts[n - 1 :].sum())",
        "counts = counts[:n]",
        "retrieval/test_baselines.py -k 'expectation or bins'",
    ),
    Mutant(
        "kernels/_overlap_search.py",
        "least overlaps of the query before still count",
        "    visits.minimum[:] = 1\n",
        "",
        "kernels/test_bounds.py -k two_words",
    ),
    Mutant(
        "kernels/meteor/cpu.py",
        "stems of one query stay for the next",
        "            space.stem_slot[reach[e]] = 0\n",
        "            pass\n",
        "kernels/test_meteor_cider.py",
    ),
    Mutant(
        "kernels/radgraph/cpu.py",
        "matches beyond 255 of the second family are forgotten",
        "hidden = np.array([max(len(ids_a) - FULL, 0), max(len(ids_b) - FULL, 0)])",
        "hidden = np.array([max(len(ids_a) - FULL, 0), 0])",
        "kernels/test_bounds.py -k large_graphs",
    ),
    # ---- tiles and chunks of BERTScore ----
    Mutant(
        "kernels/bertscore/cpu.py",
        "items of a tile are named as in the first one",
        "results.append((item + first, *parts))",
        "results.append((item, *parts))",
        "kernels/test_bertscore.py -k tiles",
    ),
    Mutant(
        "kernels/bertscore/cascade.py",
        "a tile remembers what the one before has scored",
        "    scores.is_scored[scores.item[: scores.state[0]]] = False\n",
        "    pass\n",
        "kernels/test_bertscore.py -k tiles",
    ),
    Mutant(
        "kernels/bertscore/bounds.py",
        "more is taken away than the cells of the tokens that were read",
        "(by_codes - by_cells) / weight",
        "(by_codes - 1.2 * by_cells) / weight",
        "kernels/test_bertscore.py -k 'bounds_hold or dropped or admits'",
    ),
    Mutant(
        "kernels/bertscore/bounds.py",
        "the first tokens are read again for all chunks",
        "first = corpus.ptr[u] + begin\n    n_steps",
        "first = corpus.ptr[u]\n    n_steps",
        "kernels/test_bertscore.py -k 'bounds_hold or dropped or admits'",
    ),
    Mutant(
        "kernels/_simd_codes.py",
        "recall is bounded by the codes that were read alone",
        "best = greater(builder, cosine, load(builder, column, v16, 64 * i))",
        "best = load(builder, column, v16, 64 * i)",
        "kernels/test_bertscore.py -k 'bounds_hold or dropped or admits'",
    ),
    Mutant(
        "kernels/bertscore/bounds.py",
        "of the tokens whose codes were not read one is left out",
        "_mix_recall(u, begin + n_some, corpus, coded, work, margins)",
        "_mix_recall(u, begin + n_some + 1, corpus, coded, work, margins)",
        "kernels/test_bertscore.py -k 'bounds_hold or dropped or admits'",
    ),
    Mutant(
        "kernels/bertscore/codec.py",
        "weights keep the order of the reports",
        "values if order is None else values[",
        "values if True else values[",
        "kernels/test_bertscore.py -k 'bounds_hold or dropped or admits'",
    ),
    Mutant(
        "kernels/_simd_codes.py",
        "tokens beyond the last one weigh as much",
        "builder.select(counted, weight, constant(0.0, v8))",
        "weight",
        "kernels/test_simd.py -k sines",
    ),
    Mutant(
        "kernels/bertscore/all_pairs.py",
        "the best product of a row stands among the others",
        "                    is_first = False\n                    at = t\n",
        "                    is_first = False\n",
        "kernels/test_bertscore.py -k bounds_hold",
    ),
    # ---- those that the tests of cb3681e let live ----
    Mutant(
        "retrieval/scoring.py",
        "labels without ids lie in the order of the references",
        "order = sorted(answered)",
        "order = list(answered)",
        "retrieval/test_pair_scores.py -k without_ids",
    ),
    Mutant(
        "retrieval/verification.py",
        "of equal queries the first alone is searched",
        "asked_now = [i for i in chosen.tolist() if self.pairs.which[i] in block]",
        "asked_now = [chosen[self.pairs.which[chosen] == q].tolist()[0] for q in block]",
        "retrieval/test_verification.py -k equal_queries",
    ),
    Mutant(
        "base/sealed.py",
        "a result is renamed before it is on the disk",
        "                sync(file)\n",
        "                pass\n",
        "retrieval/test_results.py -k power",
    ),
    Mutant(
        "base/sealed.py",
        "the new name of a result is not synced",
        "            sync(path.parent)\n",
        "",
        "retrieval/test_results.py -k power",
    ),
    Mutant(
        "retrieval/document_pairs.py",
        "the error of a set is that of its first shard",
        "max(self.kernel.score_error(*of_part) for of_part in self.arrays)",
        "self.kernel.score_error(*self.arrays[0])",
        "retrieval/test_shards.py -k worst_shard",
    ),
    Mutant(
        "retrieval/document_pairs.py",
        "queries are those that the first shard tells apart",
        "part.encoded.item(int(part.place[query]))",
        "self.parts[0].encoded.item(int(self.parts[0].place[query]))",
        "retrieval/test_shards.py -k told_apart",
    ),
    Mutant(
        "retrieval/pair_scores.py",
        "no pair is scored by the plain scorer, too",
        "of_record.check(",
        "(lambda *checked: None)(",
        "retrieval/test_pair_scores.py -k wrong_kernel",
    ),
    Mutant(
        "corpora/predictions.py",
        "the choice of an image depends on the process",
        "pool = sorted({image",
        "pool = list({image",
        "corpora/test_predictions.py",
    ),
    Mutant(
        "corpora/sections.py",
        "what follows the last Impression: is taken",
        "first = next((found for found in headings if",
        "first = next((found for found in headings[::-1] if",
        "corpora/test_predictions.py",
    ),
    Mutant(
        "corpora/vectors.py",
        "vectors that are 0 in float32 pass",
        "~values.any(axis=1)",
        "~np.asarray(array).any(axis=1)",
        "corpora/test_vectors.py",
    ),
    Mutant(
        "indexes/shards.py",
        "frequencies count distinct texts of a shard",
        "n_rows += len(part.row_id)",
        "n_rows += len(part.ptr) - 1",
        "indexes/test_shards.py -k twice",
    ),
    Mutant(
        "indexes/shards.py",
        "the files of the first shard alone are read",
        "for shard in self.shards():\n            shard.verify_files()",
        "for shard in [*self.shards()][:1]:\n            shard.verify_files()",
        "indexes/test_shards.py -k every_shard",
    ),
    Mutant(
        "indexes/shards.py",
        "the folder of a set is not synced",
        '"content": content})\n    sync(folder)\n',
        '"content": content})\n',
        "indexes/test_shards.py -k power",
    ),
    Mutant(
        "base/files.py",
        "a part is renamed before it is on the disk",
        "            file.writelines(content)\n        sync(temporary)\n",
        "            file.writelines(content)\n",
        "test_job.py -k on_the_disk",
    ),
    Mutant(
        "encoders/base.py",
        "parts of another machine count",
        "[self.signature, self.environment, size, *settings]",
        "[self.signature, size, *settings]",
        "encoders/test_resume.py -k machine",
    ),
    Mutant(
        "encoders/ratescore.py",
        "cut reports are counted as texts",
        "sum(n_rows[text] for text, is_cut",
        "sum(1 for text, is_cut",
        "encoders/test_ratescore.py",
    ),
    Mutant(
        "raters/interrater.py",
        "raters and studies share a stream of random numbers",
        "default_rng([seed, 1])",
        "default_rng(seed)",
        "raters/test_metric_comparison.py -k their_own",
    ),
    Mutant(
        "base/files.py",
        "the folder above a new survey is not synced",
        "    folder.rename(out)\n    sync(out.parent)\n",
        "    folder.rename(out)\n",
        "survey/test_create.py -k power",
    ),
    Mutant(
        "survey/pages.py",
        "an open cell of the first candidate is overlooked",
        "is_complete &= ",
        "is_complete = ",
        "web/test_survey.py -k script",
    ),
    Mutant(
        "base/cluster.py",
        "finished tasks stay among the signs of life",
        "ray.get(board.read.remote(), timeout=ANSWER).items() if name in names}",
        "ray.get(board.read.remote(), timeout=ANSWER).items()}",
        "test_cluster.py -k lives_on",
    ),
    # ---- joins by place, lower is better, shards and parts: survivors of a fourth look ----
    Mutant(
        "kernels/sum/ways.py",
        "a sum's unseen documents gain nothing from other metrics",
        "unseen += self.sign * last if part == name else self._most(part, queries)",
        "unseen += self.sign * last if part == name else 0.0",
        "mining/test_conditions.py -k few_documents",
    ),
    Mutant(
        "kernels/sum/ways.py",
        "of queries that are one for a metric the last sets the limit",
        "np.minimum.at(least, which, sign * limit)",
        "least[which] = sign * limit",
        "mining/test_conditions.py -k of_one_text",
    ),
    Mutant(
        "kernels/sum/ways.py",
        "scores within the error of products decide a condition",
        "            if error:\n                unsure",
        "            if False:\n                unsure",
        "mining/test_conditions.py -k products",
    ),
    Mutant(
        "kernels/sum/ways.py",
        "candidates within the error of products are lost",
        "[len(sums) - n] - 2.0 * error]",
        "[len(sums) - n]]",
        "mining/test_conditions.py -k products",
    ),
    Mutant(
        "retrieval/groups.py",
        "references are named by place among complete ones",
        "    query[complete] = pairs.which\n",
        "    query[: len(complete)] = pairs.which\n",
        "test_groups.py -k blank_references",
    ),
    Mutant(
        "base/sealed.py",
        "hash of a table does not see which values are null",
        "            hasher.update(column.is_null().to_numpy().tobytes())\n",
        "",
        "retrieval/test_results.py -k appears",
    ),
    Mutant(
        "retrieval/verification.py",
        "ties of the last score are the listed ones",
        "if not self.restrictions:  # else some rows",
        "if False:",
        "retrieval/test_verification.py -k listed_text",
    ),
    Mutant(
        "retrieval/verification.py",
        "rows with an empty value are left out",
        'if name in (SELF, TEXT) or wanted != "":',
        "if True:",
        "retrieval/test_exclusion.py -k without_a_value",
    ),
    # ---- copies, mining, samples ----
    Mutant(
        "copies/overlap.py",
        "a masked corpus is its first shard",
        "for shard in index.shards() for string",
        "for shard in [*index.shards()][:1] for string",
        "copies/test_overlap.py -k markers",
    ),
    Mutant(
        "copies/overlap.py",
        "the median is the upper one",
        "means >= 0.5 - 1e-9",
        "means >= 0.5 + 1e-9",
        "copies/test_overlap.py -k median",
    ),
    Mutant(
        "copies/overlap.py",
        "distinct texts are counted before folding",
        "len(set(numbers.folded_texts))",
        "len(set(numbers.reports.texts))",
        "copies/test_overlap.py -k distinct_texts",
    ),
    Mutant(
        "mining/selection.py",
        "a relative margin of distances has the wrong sign",
        "positive - selection.relative_margin * np.abs(positive)",
        "positive - selection.relative_margin * positive",
        "mining/test_selection.py -k 'brute_force and sentences-1'",
    ),
    Mutant(
        "mining/mine.py",
        "anchors without a positive are summed over parts",
        ', "self-score below the best", "without a positive")',
        ', "self-score below the best")',
        "mining/test_selection.py -k parts_are",
    ),
    Mutant(
        "samples/best_of.py",
        "consensus takes the greatest distance",
        "[_first(sign * of_study) if",
        "[_first(of_study) if",
        "samples/test_best_of.py -k lower",
    ),
    # ---- tables, raters, sources, corpora ----
    Mutant(
        "tables/systems.py",
        "the second file of a row is taken in its own order",
        "b.table[column].take(pa.array(rows))",
        "b.table[column]",
        "tables/test_systems.py -k order_of_a_file",
    ),
    Mutant(
        "tables/systems.py",
        "counts of corpus BLEU in each file's own order",
        "counts[:, [row_of_id[study] for study in order]][:, complete]",
        "counts[:, complete]",
        "tables/test_systems.py -k order_of_a_file",
    ),
    Mutant(
        "tables/systems.py",
        "counts of CRG in each file's own order",
        "system.table[part].to_numpy()[where] for part in parts",
        "system.table[part].to_numpy() for part in parts",
        "tables/test_systems.py -k order_of_a_file",
    ),
    Mutant(
        "tables/study.py",
        "ids of predictions do not count for finished steps",
        "checksum([read.ids, read.texts])",
        "checksum(read.texts)",
        "tables/test_study.py -k other_ids",
    ),
    Mutant(
        "tables/study.py",
        "the error of a sampled composite is that of its term",
        '_slope(metric, part) * self._sampled[part]["standard_error"]',
        'self._sampled[part]["standard_error"]',
        "tables/test_study.py -k sampled_mean",
    ),
    Mutant(
        "tables/study.py",
        "BERTScore is sampled as if no composite had it",
        "CHANCE_ERROR / max(1.0, *(_slope(name, metric) for name in self._rows))",
        "CHANCE_ERROR",
        "tables/test_study.py -k sampled_mean",
    ),
    Mutant(
        "tables/compare.py",
        "a program's number of all reports although some are left out",
        "    if np.isnan(values).any():\n        return {}\n    noted",
        "    noted",
        "tables/test_comparison_layout.py -k whole_set",
    ),
    Mutant(
        "statistics.py",
        "rounding moves the ends of an interval by a rank",
        "(len(resampled) + 1) + _TIE)",
        "(len(resampled) + 1))",
        "test_statistics.py -k rounding_moves",
    ),
    Mutant(
        "raters/interrater.py",
        "raters who repeat are joined by place",
        "rated.errors(kind)[rows, column]",
        "rated.errors(kind)[rows, i]",
        "raters/test_agreement.py -k some_raters",
    ),
    Mutant(
        "sources/labels.py",
        "columns of labels are sorted without their cells",
        "table.values[:, order])",
        "table.values)",
        "kernels/test_labels.py -k 'brute_force and 14-0.3'",
    ),
    Mutant(
        "corpora/sections.py",
        "a header may begin on the line of another",
        "start if line_end < 0 else line_end)",
        "start - 1)",
        "corpora/test_sections.py",
    ),
    Mutant(
        "corpora/streams.py",
        "ids of the piece before are forgotten",
        "before, reports, n_rows, n_kept = reports, {}, 0, 0",
        "before, reports, n_rows, n_kept = {}, {}, 0, 0",
        "corpora/test_streams.py -k whole",
    ),
    # ---- survey, explorer ----
    Mutant(
        "survey/log.py",
        "lines of another process are used before they are synced",
        "            self._add(event, len(line))\n            self._is_synced = False\n",
        "            self._add(event, len(line))\n",
        "survey/test_log.py -k killed_process",
    ),
    Mutant(
        "explorer/first_page.py",
        "the furthest model regardless of the axis",
        "signed_distance(cases, strip, model) / (strip.high - strip.low)",
        "signed_distance(cases, strip, model)",
        "web/test_first_page.py -k furthest",
    ),
    Mutant(
        "explorer/first_page.py",
        "the contradiction with the greatest distance",
        "column.values if column.is_higher_better else -column.values",
        "column.values",
        "web/test_first_page.py -k contradiction",
    ),
    Mutant(
        "explorer/first_page.py",
        "the disagreement whose texts share most",
        "q = min(np.flatnonzero(",
        "q = max(np.flatnonzero(",
        "web/test_first_page.py -k share_least",
    ),
]


def main() -> None:
    """Copy the repository, check that all mutants can be planted, and run one after the other."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("words", nargs="*")
    parser.add_argument("--copy", type=Path, help="folder of the copy; compiled code of an earlier run is used again")
    parser.add_argument("--timeout", type=float, default=150.0)
    given = parser.parse_args()
    chosen = [m for m in MUTANTS if not given.words or any(w in m.path or w in m.name for w in given.words)]
    copy = given.copy or Path(tempfile.mkdtemp(prefix="mutants-"))
    names = subprocess.check_output(["git", "ls-files", "-co", "--exclude-standard"], cwd=REPOSITORY, text=True)
    for name in names.splitlines():
        place = copy / "tree" / name
        place.parent.mkdir(parents=True, exist_ok=True)
        if (REPOSITORY / name).is_file():
            shutil.copy2(REPOSITORY / name, place)
    for mutant in chosen:
        if (copy / "tree/metric_oracle" / mutant.path).read_text(encoding="utf-8").count(mutant.old) != 1:
            sys.exit(f"mutants: {mutant.old!r} must be in {mutant.path} once")
    print("| file | mutant | diff | result |\n|---|---|---|---|", flush=True)
    killers = [_run(mutant, copy, given.timeout) for mutant in chosen]
    print(f"\n{len(chosen) - killers.count(None)} of {len(chosen)} killed.", flush=True)
    # A test that fails without a mutant kills none.
    found = [killer for killer in dict.fromkeys(killers) if killer]
    done = _pytest(copy, found) if found else None
    if done is not None and done.returncode:
        sys.exit(f"mutants: killers must pass without a mutant; got\n{done.stdout[-3000:]}")


def _pytest(copy: Path, arguments: list[str], timeout: float | None = None) -> subprocess.CompletedProcess:
    """Run tests of the copy, and of nothing else."""
    environment = {
        **os.environ, "PYTHONPATH": str(copy / "tree"), "NUMBA_CACHE_DIR": str(copy / "numba"),
        "PYTHONDONTWRITEBYTECODE": "1",
    }  # fmt: skip
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--no-header", *arguments]
    return subprocess.run(command, cwd=copy / "tree", env=environment, capture_output=True, text=True, timeout=timeout)


def _run(mutant: Mutant, copy: Path, timeout: float) -> str | None:
    """Plant a mutant, print what became of it, take it out again; return the test that killed it, "" for the clock."""
    path = copy / "tree/metric_oracle" / mutant.path
    source, times = path.read_bytes(), path.stat()
    started = time.monotonic()
    killer: str | None = None
    try:
        path.write_bytes(source.replace(mutant.old.encode(), mutant.new.encode()))
        done = _pytest(copy, ["-x", *shlex.split(f"tests/{mutant.tests}")], timeout)
        failed = re.search(r"^(?:FAILED|ERROR) (.+?)(?: - |$)", done.stdout, re.MULTILINE)
        passed = re.search(r"(\d+) passed", done.stdout)
        if failed:
            killer = failed[1]
            result = f"killed by `{killer.rpartition('/')[2]}`"
        elif done.returncode or not passed:
            result = f"**not run** (pytest ended with {done.returncode})"
        else:
            result = f"**survived** {passed[1]} tests"
    except subprocess.TimeoutExpired:
        killer, result = "", f"killed (no end after {timeout:g} s)"
    finally:
        path.write_bytes(source)
        os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))
    lines = (" ".join(text.split()).replace("|", "\\|") for text in (mutant.old, mutant.new))
    diff = " → ".join(f"`{line}`" if line else "nothing" for line in lines)
    print(f"| {mutant.path} | {mutant.name} | {diff} | {result}, {time.monotonic() - started:.0f} s |", flush=True)
    return killer


if __name__ == "__main__":
    main()
