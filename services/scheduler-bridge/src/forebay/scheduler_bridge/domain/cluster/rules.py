"""Verdict rules of the Kubernetes backend: those of every backend, and one that reads the cluster's objects.

What the objects say is judged by `domain/kubernetes`, the same code that
`forebay diagnose` runs offline.
"""

from __future__ import annotations

from forebay.scheduler_bridge.domain.verdict import Rule
from forebay.scheduler_bridge.domain.verdict_local import LOCAL_RULES

_ONLY_LOCAL = frozenset({"local-queue"})

CLUSTER_RULES: tuple[Rule, ...] = tuple(rule for rule in LOCAL_RULES if rule.name not in _ONLY_LOCAL)
