"""The training command of the crash proof: says that it was started, saves once, and may fail its first attempt.

A start is one line in a file that nobody else writes, so a job that was started
twice cannot hide it.
"""

from __future__ import annotations

import json
import os
import struct
import sys
import time
from pathlib import Path


def main() -> int:
    output, attempt = Path(os.environ["FOREBAY_OUTPUT"]), int(os.environ["FOREBAY_ATTEMPT"])  # noqa: TID251 it is a job
    with (output / "starts").open("a", encoding="utf-8") as starts:
        starts.write(f"{attempt} {os.getpid()}\n")
    save = output / "checkpoints" / f"step-{attempt:06d}"
    part = save.with_name(f"{save.name}.tmp")
    part.mkdir(parents=True, exist_ok=True)
    header = json.dumps({"w": {"dtype": "F32", "shape": [1], "data_offsets": [0, 4]}}).encode()
    (part / "model.safetensors").write_bytes(struct.pack("<Q", len(header)) + header + struct.pack("<f", attempt))
    (part / "state.json").write_text(json.dumps({"step": attempt}), encoding="utf-8")
    part.rename(save)
    time.sleep(float(sys.argv[1]))
    return 3 if attempt == 1 and sys.argv[2] == "fails-first" else 0


if __name__ == "__main__":
    sys.exit(main())
