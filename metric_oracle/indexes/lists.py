"""Lists of rows and numbers, of which documents are made: offsets, ranks, distinct values and rows in groups."""

import numpy as np


def offsets_of(lengths: np.ndarray) -> np.ndarray:
    """Return the offsets of lists of these lengths, of any shape, and their sum: int64[n + 1]."""
    return np.concatenate([[0], np.cumsum(lengths, dtype=np.int64)])


def ranks_of(order: np.ndarray) -> np.ndarray:
    """Return the place of each number from 0 in `order`, which has each of them once: int64[n]."""
    ranks = np.empty(len(order), np.int64)
    ranks[order] = np.arange(len(order))
    return ranks


def places_of_lists(ptr: np.ndarray, lists: np.ndarray) -> np.ndarray:
    """Return the indices of all values of the chosen ragged lists, list after list: int64[...].

    `ptr` has the offsets of the lists: list i has the values at ``ptr[i]`` to ``ptr[i + 1] - 1``.
    """
    begin, lengths = ptr[lists], ptr[lists + 1] - ptr[lists]
    return np.repeat(begin - np.cumsum(lengths) + lengths, lengths) + np.arange(int(lengths.sum()))


def distinct_in_order(values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the distinct values in order of first appearance, and which of them each value is: int64[n]."""
    _, first, which = np.unique(values, return_index=True, return_inverse=True)
    order = np.argsort(first)
    return values[first[order]], ranks_of(order)[which]


def numbered_anew(numbers: np.ndarray, new: np.ndarray) -> np.ndarray:
    """Return `new[number]` for each of some numbers, and -1 for each -1."""
    return np.append(new, -1)[numbers]


def group_rows(document_of_row: np.ndarray, n_documents: int) -> tuple[np.ndarray, np.ndarray]:
    """Return offsets of the rows of each document, int64[D + 1], and the rows, int64[...], ascending within a document.

    A row whose document is -1 is left out.
    """
    row_ptr = offsets_of(np.bincount(document_of_row[document_of_row >= 0], minlength=n_documents))
    order = np.argsort(document_of_row, kind="stable")
    return row_ptr, order[np.count_nonzero(document_of_row < 0) :].astype(np.int64)


def documents_of_rows(row_ptr: np.ndarray, row_id: np.ndarray, n_rows: int = 0) -> np.ndarray:
    """Return the document of each row, -1 for none, from what `group_rows` returns: int64[...].

    There are `n_rows` rows, or more, up to the last that has a document.
    """
    document_of_row = np.full(max(int(row_id.max(initial=-1)) + 1, n_rows), -1, np.int64)
    document_of_row[row_id] = np.repeat(np.arange(len(row_ptr) - 1), np.diff(row_ptr))
    return document_of_row
