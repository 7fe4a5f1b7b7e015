"""What tests count of sequences on their own."""


def subsequence(a, b):
    """Return the length of the longest common subsequence, by whole-number bit vectors (Crochemore et al., 2001)."""
    masks = {}
    for place, word in enumerate(b):
        masks[word] = masks.get(word, 0) | 1 << place
    ones = (1 << len(b)) - 1
    row = ones
    for word in a:
        common = row & masks.get(word, 0)
        row = ((row + common) | (row - common)) & ones
    return len(b) - row.bit_count()
