"""Answers to questions, read only: what made this, what did this reach, what contradicts itself."""
