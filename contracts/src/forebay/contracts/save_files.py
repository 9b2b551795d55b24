"""What the names of a checkpoint's files say; the agent that announces a save and the registry that verifies it agree on it."""

from __future__ import annotations

HOLDS_DATA = frozenset(
    {
        ".safetensors", ".json", ".pt", ".pth", ".bin", ".ckpt", ".pkl", ".npz", ".npy",
        ".msgpack", ".distcp", ".h5", ".gguf", ".metadata",
    }
)  # fmt: skip
"""Endings of files that are broken when they are empty; other empty files may be marks, such as `DONE`."""
