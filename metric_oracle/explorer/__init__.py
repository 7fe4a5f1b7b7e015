"""Pages that show single cases: results, evidence of a score, ratings."""
