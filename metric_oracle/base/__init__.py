"""What the other packages stand on: errors, checks, files, jobs, progress, and work for Ray."""
