"""Tests on a real Kubernetes with Kueue; run by `make test-cluster`."""
