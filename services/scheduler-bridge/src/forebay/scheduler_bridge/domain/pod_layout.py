"""Names and places that the manifests, the agent in the pod and the watcher of the cluster agree on."""

from __future__ import annotations

import hashlib
import re

PREPARE = "forebay-prepare"
"""Init container: checks, resume decision, writes the shim."""
WATCH = "forebay-watch"
"""Native side-car: sees checkpoints, speaks on the bus."""
TRAIN = "train"
"""The owner's container."""

DATA_DIR = "/forebay/data"
MODEL_DIR = "/forebay/models"
OUTPUT_DIR = "/forebay/output"
CHECKPOINT_DIR = f"{OUTPUT_DIR}/checkpoints"
CONTINUED_DIR = "/forebay/continued"
"""What the job that this one continues has saved, to read only."""
RUN_DIR = "/forebay/run"
"""Shared by the three containers: the shim, the resume decision, the exit code."""
POD_DIR = "/forebay/pod"
"""What the bridge wrote into the pod's annotations, as files; our containers only."""
KEY_DIR = "/forebay/key"
"""The key of this attempt: the pod's own token; our containers only."""
KEY_FILE = "token"
SHIM = f"{RUN_DIR}/start.sh"

DOMAIN = "forebay.dev"
PROJECT_LABEL = f"{DOMAIN}/project"
JOB_LABEL = f"{DOMAIN}/job"
RUN_LABEL = f"{DOMAIN}/run"
MANAGED_BY = "app.kubernetes.io/managed-by"
SPEC_DIGEST = f"{DOMAIN}/spec-sha256"
OWNER = f"{DOMAIN}/owner"
INPUTS = f"{DOMAIN}/inputs"
"""Annotation of the pod: what the agent must find, as JSON."""
PIN_PREFIX = f"pin.{DOMAIN}/"
"""Annotation of the pod per input: its path in the pool."""
UNPINNED = "not-pinned-yet"
"""Stands in a pin until the gate opens; no such folder exists."""
INSTRUMENTED = f"{DOMAIN}/instrumented"
DATASET_ANNOTATION = f"{DOMAIN}/dataset"
"""A plain Job asks for data with this: `pick-place@train-ready`, comma separated."""
HELD = f"{DOMAIN}/held"
"""On a Workload that we have deactivated (only those do we activate again), and on a Job that we have suspended."""
GATE = f"{DOMAIN}/data-ready"
KUEUE_GATED_BY = "kueue.x-k8s.io/admission-gated-by"
KUEUE_QUEUE = "kueue.x-k8s.io/queue-name"
WAITING_QUEUE = f"{DOMAIN}/queue"
"""The queue of a Job whose queue label is kept off, because Kueue would not honour the gate."""
KUEUE_PRIORITY = "kueue.x-k8s.io/priority-class"

MASTER_PORT = 29500
_LABEL = 63
_ROOM = len("-1023")
"""An Indexed Job names its hosts `<job>-<index>`, and that must be a label too."""


def object_name(job: str) -> str:
    """The Job's name: the job's id, or a shorter one with a digest when pods could not be named after it."""
    longest = _LABEL - _ROOM
    if len(job) <= longest:
        return job
    digest = hashlib.sha256(job.encode()).hexdigest()[:8]
    return f"{job[: longest - 9].rstrip('-')}-{digest}"


def service_name(name: str) -> str:
    """The headless Service of a Job: a DNS label of the old kind, which begins with a letter."""
    return name if name[:1].isalpha() else f"j-{name}"[:_LABEL].rstrip("-")


def pin_annotation(kind: str, name: str) -> str:
    """The annotation that holds the pool path of one input; an annotation's name has 63 characters."""
    text = f"{kind}.{name}"
    if len(text) > _LABEL:
        text = f"{text[:54].rstrip('-.')}-{hashlib.sha256(text.encode()).hexdigest()[:8]}"
    return PIN_PREFIX + text


def pin_variable(index: int) -> str:
    return f"FOREBAY_PIN_{index}"


def volume_name(kind: str, source: str) -> str:
    """A name for a volume that two different sources never share."""
    digest = hashlib.sha256(f"{kind}\0{source}".encode()).hexdigest()[:10]
    plain = re.sub(r"[^a-z0-9]+", "-", source.lower()).strip("-")[:30].strip("-")
    return "-".join(part for part in (f"m-{kind}", plain, digest) if part)
