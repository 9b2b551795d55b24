"""Requests that change something: each answers with one decision, or says no and why."""
