"""Searches by one metric among the reports that fulfil conditions on others."""
