"""Answers -> tables; the demonstration."""
