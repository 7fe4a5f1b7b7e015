"""Several reports of a model for one study, and the one that agrees best with the others."""
