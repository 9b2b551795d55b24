"""The cache: which bytes a job will read, and whether they are really there."""
