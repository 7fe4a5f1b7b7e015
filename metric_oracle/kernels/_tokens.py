"""Cutting texts into tokens and numbering these, over the bytes of texts in UTF-8."""

import numpy as np

from metric_oracle.kernels._build import table_size
from metric_oracle.kernels._jit import inner, jit

_MIX = np.uint64(0x9E3779B97F4A7C15)  # 2**64 over the golden ratio, odd: spreads numbers over hash tables
PART, BLANK, FIRST = 0, 1, 2  # a byte of a token; one between tokens; one that begins a token


@jit
def split_tokens(content, text_ptr, role):
    """Cut texts into tokens, and number the distinct tokens by first appearance.

    Parameters
    ----------
    content : uint8[B]
        The texts in UTF-8, one after another.
    text_ptr : int64[n + 1]
        Offset of each text in `content`.
    role : uint8[256]
        Role of each byte value: `PART` of a token, `BLANK` between tokens, or `FIRST` byte of a token.

    Returns
    -------
    ids : int32[T]
        Number of each token.
    ptr : int64[n + 1]
        Offset of each text in `ids`.
    begin, end : int64[W], int64[W]
        Where each distinct token first begins and ends in `content`.
    """
    ids, ptr = (
        np.empty(text_ptr[-1], np.int32),
        np.zeros(len(text_ptr), np.int64),
    )  # pages that are not written cost nothing
    begin, end = np.empty(1 << 10, np.int64), np.empty(1 << 10, np.int64)
    codes = np.empty(1 << 10, np.uint64)
    table = np.full(table_size(len(begin)), -1, np.int32)
    n = at = 0
    for i in range(len(text_ptr) - 1):
        p, last = text_ptr[i], text_ptr[i + 1]
        while p < last:
            if role[content[p]] == BLANK:
                p += 1
                continue
            first = p
            code = np.uint64(content[p])
            p += 1
            while p < last and role[content[p]] == PART:
                code = (code ^ np.uint64(content[p])) * _MIX
                p += 1
            code *= _MIX
            slot = _find(table, codes, begin, end, content, code, first, p)
            if table[slot] < 0:
                if n == len(begin):
                    begin, end, codes = _twice(begin), _twice(end), _twice(codes)
                    table = np.full(table_size(len(begin)), -1, np.int32)
                    for token in range(n):
                        table[_find(table, codes, begin, end, content, codes[token], begin[token], end[token])] = token
                    slot = _find(table, codes, begin, end, content, code, first, p)
                begin[n], end[n], codes[n] = first, p, code
                table[slot] = n
                n += 1
            ids[at] = table[slot]
            at += 1
        ptr[i + 1] = at
    return ids[:at].copy(), ptr, begin[:n].copy(), end[:n].copy()


@inner
def _find(table, codes, begin, end, content, code, first, last):
    """Return the slot in a hash table of the token ``content[first:last]``, or the empty slot where it belongs.

    `code` is its hash. The table holds token numbers, -1 for none; their hashes are in `codes`, their places in
    `content` in `begin` and `end`.
    """
    slot = np.int64((code >> np.uint64(32)) & np.uint64(len(table) - 1))
    while table[slot] >= 0:
        token = table[slot]
        if codes[token] == code and end[token] - begin[token] == last - first:
            p = 0
            while p < last - first and content[begin[token] + p] == content[first + p]:
                p += 1
            if p == last - first:
                break
        slot = (slot + 1) & (len(table) - 1)
    return slot


@inner
def _twice(values):
    """Return a copy of the values in an array of twice the length."""
    more = np.empty(2 * len(values), values.dtype)
    for i in range(len(values)):  # compiled in a fiftieth of the time of an assignment of slices
        more[i] = values[i]
    return more
