"""Local adapters: what touches processes, files and this machine."""
