"""Attacks of a hostile collector and of a failing machine, each against the real parts."""
