"""Tests that cross a process or a package border."""
