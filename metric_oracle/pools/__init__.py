"""Pools of candidates for each test report, made by searches and scored by a judge."""
