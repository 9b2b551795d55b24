"""Tests of the cache; a package so that they can share table builders."""
