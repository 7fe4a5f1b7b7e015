"""Judgements of radiologists: rated sets, agreement with metrics, and composites fitted to them."""
