"""Cutting texts into tokens and numbering these, over the bytes of texts in UTF-8."""

import re
from functools import partial
from itertools import pairwise

import numpy as np

from metric_oracle.kernels._build import table_size
from metric_oracle.kernels._jit import inner, linear

_MIX = np.uint64(0x9E3779B97F4A7C15)  # 2**64 over the golden ratio, odd: spreads numbers over hash tables
PART, BLANK, FIRST = 0, 1, 2  # a byte of a token; one between tokens; one that begins a token


def find_tokens(content, text_ptr, role):
    """Cut texts into tokens by a regular expression; parameters and results are those of `split_tokens`."""
    starts, parts = (re.escape(bytes(np.flatnonzero(some).astype(np.uint8))) for some in (role != BLANK, role == PART))
    token = re.compile(b"[%b][%b]*" % (starts, parts), re.DOTALL)
    raw = content.tobytes()
    spans: list[tuple[int, int]] = []
    number: dict[bytes, int] = {}
    ids: list[int] = []
    ptr = [0]
    for first, last in pairwise(text_ptr.tolist()):
        for found in token.finditer(raw, first, last):
            token_id = number.setdefault(found[0], len(number))
            if token_id == len(spans):
                spans.append(found.span())
            ids.append(token_id)
        ptr.append(len(ids))
    begin, end = np.array(spans, np.int64).reshape(-1, 2).T
    return np.array(ids, np.int32), np.array(ptr, np.int64), begin.copy(), end.copy()


@partial(linear, plain=find_tokens, share=0.05)
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
    ids = np.empty(text_ptr[-1], np.int32)  # pages that are not written cost nothing
    ptr = np.zeros(len(text_ptr), np.int64)
    found = np.empty((1 << 9, 3), np.int64)  # hash, begin and end of each distinct token
    text = p = at = n = 0
    while text < len(text_ptr) - 1:
        before, found = found, np.empty((2 * len(found), 3), np.int64)
        table = np.full(table_size(len(found)), -1, np.int32)
        for token in range(n):
            for i in range(3):  # compiled in a fiftieth of the time of an assignment of slices
                found[token, i] = before[token, i]
            slot = _slot(table, found[token, 0])
            while table[slot] >= 0:
                slot = (slot + 1) & (len(table) - 1)
            table[slot] = token
        text, p, at, n = _split_until_full(content, text_ptr, role, ids, ptr, found, table, (text, p, at, n))
    return ids[:at].copy(), ptr, found[:n, 1].copy(), found[:n, 2].copy()


@inner
def _split_until_full(content, text_ptr, role, ids, ptr, found, table, begun):
    """Go on where an earlier call ended until `found` has no room for another token.

    `begun`, and what is returned, are a text, a byte, and the numbers of tokens and distinct ones before it; at the end
    the text is the number of texts. The hash table holds numbers of distinct tokens, -1 for none.

    Arrays that a loop replaces are counted in each turn, which took nine tenths of the time: here no array is replaced.
    """
    first_text, p, at, n = begun
    for text in range(first_text, len(text_ptr) - 1):
        p, last = max(p, text_ptr[text]), text_ptr[text + 1]
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
            hashed = np.int64(code * _MIX)
            slot = _slot(table, hashed)
            while table[slot] >= 0:
                token = table[slot]
                begin, end = found[token, 1], found[token, 2]
                if found[token, 0] == hashed and end - begin == p - first:
                    same = 0
                    while same < p - first and content[begin + same] == content[first + same]:
                        same += 1
                    if same == p - first:
                        break
                slot = (slot + 1) & (len(table) - 1)
            if table[slot] < 0:
                if n == len(found):
                    return text, first, at, n
                found[n, 0], found[n, 1], found[n, 2] = hashed, first, p
                table[slot] = n
                n += 1
            ids[at] = table[slot]
            at += 1
        ptr[text + 1] = at
    return len(text_ptr) - 1, p, at, n


@inner
def _slot(table, hashed):
    """Return the slot of a hash table at which to look first for a token with this hash."""
    return (hashed >> 32) & (len(table) - 1)
