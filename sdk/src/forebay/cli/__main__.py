"""`python -m forebay.cli`."""

from __future__ import annotations

from forebay.cli.main import main

if __name__ == "__main__":
    main()
