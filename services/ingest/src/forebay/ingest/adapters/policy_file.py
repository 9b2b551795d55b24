"""Policies on disk: the file that a person names, and the one that is stored for a project."""

from __future__ import annotations

from pathlib import Path

import yaml

from forebay.ingest.domain.policy import NO_POLICY, Policy, PolicyError, parse_policy
from forebay.ingest.errors import PolicyRefusedError
from forebay.runtime.regular_files import read_regular

_MAX_BYTES = 1 << 20


def read_policy(path: Path) -> Policy:
    """The policy in one file; raises `PolicyRefusedError` that names the file and every problem."""
    try:
        if path.stat().st_size > _MAX_BYTES:
            msg = f"policy {path} has more than {_MAX_BYTES} bytes"
            raise PolicyRefusedError(msg)
        return parse_policy(yaml.safe_load(read_regular(path).decode("utf-8")))
    except OSError as error:
        msg = f"policy {path} cannot be read: {error.strerror}"
        raise PolicyRefusedError(msg) from error
    except (yaml.YAMLError, UnicodeDecodeError, RecursionError) as error:
        msg = f"policy {path} is no YAML: {' '.join(str(error).split())[:300]}"
        raise PolicyRefusedError(msg) from error
    except PolicyError as error:
        msg = f"policy {path}: {error}"
        raise PolicyRefusedError(msg) from error


def project_policy(folder: Path, project: str) -> Policy:
    """The policy of a project, `<folder>/<project>.yaml`; one that changes nothing when there is none."""
    path = folder / f"{project}.yaml"
    return read_policy(path) if path.exists() else NO_POLICY
