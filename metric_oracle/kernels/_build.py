"""Compiled functions that build the index of a corpus whose documents are sets of features.

They find equal lists of integers by hashing, number n-grams, and invert the lists of features of the documents (the
forward index) into the lists of documents of the features (posting lists). A *feature* is an integer id of an element
of a document, such as an n-gram. Ragged lists are an array of values and an array of offsets: list i is ``values[ptr[i]
: ptr[i + 1]]``.
"""

import numpy as np

from metric_oracle.kernels._jit import inner, linear

_MIX = 0x9E3779B97F4A7C15  # 2**64 over the golden ratio, odd: spreads numbers over hash tables


@linear
def reorder(fwd_ptr, fwd_id, order):
    """Return the ragged lists with the indices `order`, in this order, as offsets, int64[n + 1], and values.

    The lists are `fwd_id`, with offsets `fwd_ptr`.
    """
    new_ptr = np.zeros(len(order) + 1, np.int64)
    for i in range(len(order)):
        new_ptr[i + 1] = new_ptr[i] + fwd_ptr[order[i] + 1] - fwd_ptr[order[i]]
    out = np.empty(new_ptr[-1], fwd_id.dtype)
    for i in range(len(order)):
        source = fwd_ptr[order[i]]
        for p in range(new_ptr[i], new_ptr[i + 1]):
            out[p] = fwd_id[source + p - new_ptr[i]]
    return new_ptr, out


@linear
def distinct_lists(ptr, values):
    """Find the distinct lists among n ragged lists of integers by hashing; those of equal hashes are compared in full.

    `values` holds the lists, and `ptr`, int64[n + 1], the offset of each and the end of the last. Returned are `which`,
    int64[n], for each list the number of its distinct list, from 0 by first appearance, and `first`, int64[m], the
    index of the first list with each number.
    """
    n, n_distinct = len(ptr) - 1, 0
    table = np.full(table_size(n), -1, np.int64)
    which, first = np.empty(n, np.int64), np.empty(n, np.int64)
    for i in range(n):
        mixed = np.uint64(ptr[i + 1] - ptr[i])
        for p in range(ptr[i], ptr[i + 1]):
            mixed = (mixed ^ np.uint64(values[p])) * np.uint64(_MIX)
            mixed ^= mixed >> np.uint64(29)
        slot = np.int64(mixed & np.uint64(len(table) - 1))
        while table[slot] >= 0 and not _same_list(ptr, values, i, first[table[slot]]):
            slot = (slot + 1) & (len(table) - 1)
        if table[slot] < 0:
            table[slot] = n_distinct
            first[n_distinct] = i
            n_distinct += 1
        which[i] = table[slot]
    return which, first[:n_distinct].copy()


@inner
def _same_list(ptr, values, i, j):
    """Return whether lists i and j of the ragged lists (offsets `ptr`, `values`) have equal values in equal order."""
    n = ptr[i + 1] - ptr[i]
    p = 0
    while p < n and ptr[j + 1] - ptr[j] == n and values[ptr[i] + p] == values[ptr[j] + p]:
        p += 1
    return p == n and ptr[j + 1] - ptr[j] == n


@inner
def table_size(n):
    """Return the size of a hash table for `n` keys: a power of two, at least 16 and 2 n."""
    size = 16
    while size < 2 * n:
        size *= 2
    return size


@inner
def find_key(table, keys, key):
    """Return the slot of `key` in a hash table, or the empty slot in which it is to be inserted.

    An entry of `table` is an index into `keys`, or -1 if it is empty.
    """
    mixed = np.uint64(key) * np.uint64(_MIX)
    slot = np.int64((mixed ^ (mixed >> np.uint64(32))) & np.uint64(len(table) - 1))
    while table[slot] >= 0 and keys[table[slot]] != key:
        slot = (slot + 1) & (len(table) - 1)
    return slot


@linear
def posting_offsets(fwd_id, n_features):
    """Return the offset of the posting list of each feature: int64[n_features + 1].

    `fwd_id` is the forward index, the features of each document. A posting list holds the documents that contain a
    feature, so its length is the number of occurrences of the feature in `fwd_id`.
    """
    post_ptr = np.zeros(n_features + 1, np.int64)
    for p in range(len(fwd_id)):
        post_ptr[fwd_id[p] + 1] += 1
    for v in range(n_features):
        post_ptr[v + 1] += post_ptr[v]
    return post_ptr


@linear
def invert_lists(fwd_ptr, fwd_id, post_ptr, first, last):
    """Return the posting lists of the features first .. last - 1: the documents with each, ascending, by counting sort.

    The forward index `fwd_id` has the features of each document, at the offsets `fwd_ptr`; `post_ptr` is what
    `posting_offsets` returns.
    """
    cursor = post_ptr[first:last] - post_ptr[first]
    post_unit = np.empty(post_ptr[last] - post_ptr[first], np.int32)
    for u in range(len(fwd_ptr) - 1):
        for p in range(fwd_ptr[u], fwd_ptr[u + 1]):
            v = fwd_id[p] - first
            if 0 <= v < len(cursor):
                post_unit[cursor[v]] = u
                cursor[v] += 1
    return post_unit


@linear
def note_buckets(post_ptr, post_unit, first, last, bucket_of_document, skip_slot, skip):
    """Write where each length bucket begins in the posting lists of some features, so that a search can skip to it.

    A length bucket is a run of documents of equal size. Documents are sorted by size, so the documents of a bucket are
    adjacent in a posting list too. Only the features first .. last - 1 that have a row in `skip` (the long posting
    lists) are handled.

    Parameters
    ----------
    post_ptr : int64[V + 1]
        Offsets of the posting lists of all features.
    post_unit : int32[...]
        Documents of the posting lists of the features first .. last - 1 alone.
    bucket_of_document : int64[D]
        Length bucket of each document.
    skip_slot : int32[V]
        Row in `skip` of each feature, -1 if it has none.

    Writes
    ------
    skip : int32[S, buckets + 1], the rows of these features
    """
    for v in range(first, last):
        if skip_slot[v] >= 0:
            bucket, begin = 0, post_ptr[v] - post_ptr[first]
            for p in range(begin, post_ptr[v + 1] - post_ptr[first]):
                while bucket <= bucket_of_document[post_unit[p]]:
                    skip[skip_slot[v], bucket] = p - begin
                    bucket += 1
            skip[skip_slot[v], bucket:] = post_ptr[v + 1] - post_ptr[v]


@linear
def number_grams(ptr, words, gram, order, n_words, most):
    """Replace the number of each (n - 1)-gram by that of the n-gram that begins at the same word, in place.

    Calling it for n = 2, 3, ... numbers the n-grams of all orders. The n-grams are numbered from 0 by first appearance.

    Parameters
    ----------
    ptr : int64[D + 1]
        Offsets of the documents in `words` and `gram`.
    words : int32[T]
        Word ids of all documents.
    gram : int32[T], overwritten
        For each word, the number of the (n - 1)-gram that begins there.
    order : int
        n, at least 2.
    n_words : int
        Size of the vocabulary.
    most : int
        Number of distinct n-grams after which to stop.

    Returns
    -------
    int64[...]
        Key of each n-gram by its number: number of its first n - 1 words * n_words + id of its last word.
    """
    keys = np.empty(4, np.int64)
    u = p = n = 0
    while u < len(ptr) - 1 and n < most:
        before, keys = keys, np.empty(2 * len(keys), np.int64)
        table = np.full(table_size(len(keys)), -1, np.int32)
        for i in range(n):  # compiled in a fiftieth of the time of an assignment of slices
            keys[i] = before[i]
            table[find_key(table, keys, keys[i])] = i
        u, p, n = _number_until_full(ptr, words, gram, order, n_words, min(len(keys), most), keys, table, (u, p, n))
    return keys[:n].copy()


@inner
def _number_until_full(ptr, words, gram, order, n_words, most, keys, table, begun):
    """Go on where an earlier call ended until there would be more than `most` distinct n-grams.

    `begun`, and what is returned, are a document, a word of it, and the number of distinct n-grams before it; at the
    end the document is the number of documents. No array is replaced here: arrays that a loop replaces are counted in
    each turn, which took most of the time.
    """
    first_document, first_word, n = begun
    for u in range(first_document, len(ptr) - 1):
        for p in range(max(first_word, ptr[u]), ptr[u + 1] - order + 1):
            key = np.int64(gram[p]) * n_words + words[p + order - 1]
            slot = find_key(table, keys, key)
            if table[slot] < 0:
                if n == most:
                    return u, p, n
                table[slot] = n
                keys[n] = key
                n += 1
            gram[p] = table[slot]
    return len(ptr) - 1, 0, n


@linear
def place_features(ptr, gram, rank, order, place, fwd_id, first, most):
    """Write the features of one order of n-grams into the forward index.

    Within an order the n-grams of a document are in text order. A text that contains an n-gram twice has two features:
    the n-gram, and a *repeat*, the pair of the n-gram and the count of its earlier occurrences. The ids of repeats
    follow those of the n-grams, by n-gram and count.

    Parameters
    ----------
    ptr : int64[D + 1]
        Offsets of the documents in `gram`.
    gram : int32[T], overwritten
        Number of the n-gram that begins at each word.
    rank : int32[n-grams]
        Final number of each n-gram, by the order of its key.
    order : int
        n of the n-grams.
    place : int64[D]
        Where the first of these features of each document belongs in `fwd_id`.
    first : int
        The first feature id of the order.
    most : int
        Number of repeats from which on none is written.
    fwd_id : int32[P], overwritten
        The forward index.

    Returns
    -------
    int32[n-grams]
        Number of repeats of each n-gram.
    """
    seen_in, times = np.full(len(rank), -1, np.int32), np.zeros(len(rank), np.int32)
    repeats = np.zeros(len(rank), np.int32)
    for u in range(len(ptr) - 1):
        for p in range(ptr[u], ptr[u + 1] - order + 1):
            g = rank[gram[p]]
            gram[p] = g
            times[g] = times[g] + 1 if seen_in[g] == u else 0
            seen_in[g] = u
            repeats[g] = max(repeats[g], times[g])
            fwd_id[place[u] + p - ptr[u]] = first + g if times[g] == 0 else -times[g]
    before = np.empty(len(rank), np.int64)  # the id before the first repeat of each n-gram
    total = first + len(rank) - 1
    for g in range(len(rank)):
        before[g] = total
        total += repeats[g]
    if total - (first + len(rank) - 1) < most:
        for u in range(len(ptr) - 1):
            for p in range(ptr[u], ptr[u + 1] - order + 1):
                feature = fwd_id[place[u] + p - ptr[u]]
                if feature < 0:
                    fwd_id[place[u] + p - ptr[u]] = before[gram[p]] - feature
    return repeats


@linear
def number_rows(rows, n_bits):
    """Find the distinct rows of a matrix, uint32[n, d] or uint8[n, d], and number them in order of first appearance.

    The hash table has 2**n_bits slots, which must be at least twice as many as rows. Returned are the index of the
    first row with each number, int64[m], ascending, and the number of each row, int64[n].
    """
    table = np.full(1 << n_bits, -1, np.int64)
    first = np.empty(len(rows), np.int64)
    number = np.empty(len(rows), np.int64)
    n = 0
    for i in range(len(rows)):
        h = np.uint64(0xCBF29CE484222325)
        for j in range(rows.shape[1]):
            h = (h ^ np.uint64(rows[i, j])) * np.uint64(0x9E3779B97F4A7C15)
            h ^= h >> np.uint64(29)
        slot = np.int64(h >> np.uint64(64 - n_bits))
        while table[slot] >= 0 and not _equal(rows, first[table[slot]], i):
            slot = (slot + 1) % len(table)
        if table[slot] < 0:
            table[slot] = n
            first[n] = i
            n += 1
        number[i] = table[slot]
    return first[:n].copy(), number


@inner
def _equal(rows, a, b):
    """Return whether rows a and b of the matrix `rows` are equal."""
    for j in range(rows.shape[1]):  # noqa: SIM110 - compiled
        if rows[a, j] != rows[b, j]:
            return False
    return True
