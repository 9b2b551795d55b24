"""Which commands there are and who brings them, without importing any of them.

`forebay --help` must come at once, so names and one-line helps stand here; the
module behind a command is loaded when that command is called. Commands of other
packages come through the entry point group `forebay.commands`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from importlib.metadata import EntryPoint, entry_points

GROUP = "forebay.commands"


@dataclass(frozen=True, slots=True, kw_only=True)
class Provider:
    """A module or package whose `register(app)` adds commands."""

    name: str
    panel: str
    commands: Mapping[str, str]
    """Name and one-line help of each command."""
    module: str | None = None
    """None: another package brings it, through an entry point of that name."""


_DATA, _JOBS, _MODELS, _PLACE = "Data", "Jobs", "Models and lineage", "This installation"

PROVIDERS: tuple[Provider, ...] = (
    Provider(
        name="local",
        panel=_PLACE,
        commands={
            "up": "Start the bus, the data pool and the services on this machine.",
            "down": "Stop everything that `up` started.",
            "status": "Show what runs, and what is wrong with it.",
            "bus": "Keys, configuration and streams of the bus.",
        },
    ),
    Provider(
        name="ingest",
        panel=_DATA,
        commands={
            "validate": "Check a dataset folder against every rule, without any server.",
            "convert": "Turn a dataset folder into a verified Lance version, offline.",
            "rules": "List the validation rules, or waive one.",
        },
    ),
    Provider(
        name="upload",
        panel=_DATA,
        module="forebay.cli.upload",
        commands={"upload": "Upload a LeRobot folder into a dataset."},
    ),
    Provider(
        name="datasets",
        panel=_DATA,
        module="forebay.cli.datasets",
        commands={"dataset": "List, show, tag, derive, compare and clean up datasets."},
    ),
    Provider(
        name="episodes",
        panel=_DATA,
        module="forebay.cli.episodes",
        commands={"episode": "Withdraw an episode."},
    ),
    Provider(
        name="cache",
        panel=_DATA,
        commands={"plan": "Show which bytes a job would read."},
    ),
    Provider(
        name="caching",
        panel=_DATA,
        module="forebay.cli.caching",
        commands={
            "cache": "Show what is warm and why, evict, set the policy.",
            "warm": "Warm a dataset version before a job needs it.",
        },
    ),
    Provider(
        name="jobs",
        panel=_JOBS,
        module="forebay.cli.jobs",
        commands={
            "submit": "Submit a training job.",
            "jobs": "List jobs.",
            "job": "Show everything on record about a job.",
            "why": "Say why a job is where it is.",
            "retry": "Run a failed or cancelled job again, from its checkpoints.",
            "cancel": "Cancel a job.",
        },
    ),
    Provider(
        name="diagnose",
        panel=_JOBS,
        commands={"diagnose": "Say why a job on Kubernetes waits or ended, from a file of kubectl, offline."},
    ),
    Provider(
        name="mounts",
        panel=_JOBS,
        commands={"mounts": "Check the mounts of a job, offline."},
    ),
    Provider(
        name="run",
        panel=_JOBS,
        module="forebay.cli.run",
        commands={"run": "Stand beside a training command (inside a job)."},
    ),
    Provider(
        name="pod",
        panel=_JOBS,
        module="forebay.cli.pod",
        commands={"pod": "Inside a training pod: check before the start, watch beside it."},
    ),
    Provider(
        name="models",
        panel=_MODELS,
        module="forebay.cli.models",
        commands={"model": "Register, evaluate, release, fetch and list models; what a release must meet."},
    ),
    Provider(
        name="lineage",
        panel=_MODELS,
        module="forebay.cli.lineage",
        commands={
            "lineage": "Show what made something, down to the episodes.",
            "impact": "Show what something reached, up to released models.",
        },
    ),
    Provider(
        name="audits",
        panel=_MODELS,
        module="forebay.cli.audits",
        commands={
            "audit": "Find contradictions, broken links and weak grounds.",
            "diff": "Show what changed between two models.",
            "history": "Show what a model's channels named, and when.",
            "search": "Find models and datasets by task, robot, dataset, metric.",
        },
    ),
    Provider(
        name="checkpoints",
        panel=_MODELS,
        module="forebay.cli.checkpoints",
        commands={
            "resume-point": "Say where a job would continue, and why.",
            "checkpoint": "Judge checkpoints offline; bring in those of old runs; delete them.",
        },
    ),
    Provider(
        name="deleting",
        panel=_JOBS,
        module="forebay.cli.deleting",
        commands={"delete": "Delete the files of a job that nothing needs; its record stays."},
    ),
    Provider(
        name="watch",
        panel=_PLACE,
        module="forebay.cli.watch",
        commands={"watch": "Follow events and progress as they happen."},
    ),
    Provider(
        name="dead",
        panel=_PLACE,
        module="forebay.cli.dead",
        commands={"dead": "List, show, retry and dismiss what a service gave up on."},
    ),
    Provider(
        name="rebuild",
        panel=_PLACE,
        module="forebay.cli.rebuild",
        commands={"rebuild": "Fold the log again and compare with what a service holds."},
    ),
)


def installed() -> Mapping[str, EntryPoint]:
    """Entry points of other packages, by name."""
    return {point.name: point for point in entry_points(group=GROUP)}
