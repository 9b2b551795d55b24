"""The verdict on Kubernetes: facts, the grammar of messages, and rules. Pure functions throughout."""
