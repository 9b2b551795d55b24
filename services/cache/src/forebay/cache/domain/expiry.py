"""How long data that nobody uses stays warm: from how old data was when it was used before."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta

DEFAULT_TTL_DAYS = 8
"""Most reads of robot data come within the first eight days."""
SHARE = 0.8
"""The share of uses that the time to live should cover."""
ENOUGH_USES = 20
"""With fewer uses on record the default holds."""
SHORTEST_DAYS, LONGEST_DAYS = 1, 90


def ttl_days(ages: Mapping[str, int], chosen: int | None = None) -> int:
    """Days without use after which a plan expires.

    `ages` counts uses by the age of the data in days. A person's choice holds; else the
    smallest age that covers `SHARE` of all uses, since data is warm from its first day.
    """
    if chosen is not None:
        return chosen
    total = sum(ages.values())
    if total < ENOUGH_USES:
        return DEFAULT_TTL_DAYS
    covered = 0
    for age in sorted(int(one) for one in ages):
        covered += ages[str(age)]
        if covered >= SHARE * total:
            return min(LONGEST_DAYS, max(SHORTEST_DAYS, age))
    return LONGEST_DAYS


def expires_at(used_at: datetime, days: int) -> datetime:
    """The full hour from which on a plan is expired; full hours, so that few alarms are needed."""
    due = used_at + timedelta(days=days)
    hour = due.replace(minute=0, second=0, microsecond=0)
    return hour if hour == due else hour + timedelta(hours=1)
