"""BLEU: shared n-grams of orders 1 to 4."""
