"""The scheduler bridge on a real cluster."""
