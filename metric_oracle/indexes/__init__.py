"""Representations of a corpus (the forms of reports that metrics read): building, storing on disk, opening."""
