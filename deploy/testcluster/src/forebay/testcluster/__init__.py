"""A real one-node Kubernetes with Kueue on this machine, for tests: built, started and taken down without a trace."""
