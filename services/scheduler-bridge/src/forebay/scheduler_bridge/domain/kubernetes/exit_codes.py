"""What an exit code says, and what it does not: 137 and 143 prove nothing but a signal.

Codes of well-known wrappers are read by their own tables: Forebay's preflight (200-219), and the
ranges above 1000 that OSMO gives to what it does around the user's command.
"""

from __future__ import annotations

import json
import re

from forebay.contracts.reasons import Layer, Reason
from forebay.scheduler_bridge.domain.kubernetes.rules import MessageRule, Text
from forebay.scheduler_bridge.domain.kubernetes.vocabulary import Cause, Finding, finding

_SIGNALS: dict[int, tuple[Cause, str, str | None]] = {
    130: (Cause.OTHER, "the process was interrupted (SIGINT)", None),
    132: (Cause.CRASH, "the process used an instruction that this processor does not have (SIGILL)", None),
    134: (Cause.CRASH, "the process ended itself (SIGABRT): a failed assertion, or a watchdog such as NCCL's", None),
    135: (
        Cause.CRASH,
        "the process touched memory that is not there (SIGBUS): usually /dev/shm is too small",
        "give the pod a memory volume at /dev/shm that is large enough for its data loader workers",
    ),
    136: (Cause.CRASH, "the process ended with an arithmetic error (SIGFPE)", None),
    139: (Cause.CRASH, "the process touched memory that is not its own (SIGSEGV)", None),
}
_FROM_OUTSIDE = {
    137: "the process was killed from outside (SIGKILL); by whom, this alone does not say",
    143: "the process was asked to stop (SIGTERM); by whom, this alone does not say",
}
_WRAPPED: tuple[tuple[range, Cause, str, Layer | None], ...] = (
    (range(2010, 2011), Cause.VOLUME_MOUNT, "the wrapper could not download the inputs", Layer.DATA),
    (range(2011, 2012), Cause.VOLUME_MOUNT, "the wrapper could not mount a volume", None),
    (range(2012, 2013), Cause.VOLUME_MOUNT, "the wrapper could not upload the outputs", Layer.DATA),
    (range(2013, 2015), Cause.PERMISSION, "the data's credentials were refused", Layer.DATA),
    (range(3000, 3001), Cause.OTHER, "a task before this one failed", None),
    (range(3001, 3002), Cause.NODE_LOST, "the backend failed", None),
    (range(3003, 3004), Cause.CONFIG, "the task could not be started", None),
    (range(3004, 3005), Cause.EVICTED_NODE, "the task was evicted", None),
    (range(3005, 3006), Cause.TIMEOUT, "the task did not start in time", None),
    (range(3006, 3007), Cause.PREEMPTED, "the task was preempted", None),
)
PREFLIGHT = range(200, 220)
_CHECKS: dict[int, tuple[Cause, Reason, str]] = {
    200: (Cause.CONFIG, Reason.CONFIG_UNREADABLE, "what the job was promised cannot be read"),
    201: (Cause.CONFIG, Reason.DATASET_CHANGED, "the data is not the pinned version"),
    202: (Cause.CONFIG, Reason.CONFIG_UNREADABLE, "a configuration file cannot be read"),
    203: (Cause.CONFIG, Reason.CHECKPOINT_UNREADABLE, "the checkpoint to continue from cannot be read"),
    204: (Cause.CONFIG, Reason.RESUME_REFUSED, "no checkpoint fits, and a cold start is not allowed"),
    205: (Cause.CONFIG, Reason.OUTPUT_NOT_WRITABLE, "the output folder takes no files"),
    206: (Cause.CONFIG, Reason.OUTPUT_FULL, "the output folder has no room"),
    207: (Cause.CONFIG, Reason.SHM_TOO_SMALL, "shared memory is smaller than needed"),
    208: (Cause.CONFIG, Reason.OTHER_DATA_MOUNTED, "something else than a dataset version is mounted"),
    209: (Cause.CONFIG, Reason.DATA_MISSING, "the dataset version is not on its volume"),
    210: (Cause.VOLUME_MOUNT, Reason.DATA_NOT_MOUNTED, "the data's folder is no mount, or an empty one"),
    211: (Cause.VOLUME_MOUNT, Reason.DATA_UNREADABLE, "the data is mounted and cannot be read"),
    212: (Cause.GPU_SHORTAGE, Reason.GPU_NOT_VISIBLE, "no GPU can be seen inside the pod"),
    213: (Cause.CONFIG, Reason.DRIVER_MISMATCH, "GPU driver and library do not fit each other"),
    214: (Cause.GPU_SHORTAGE, Reason.GPU_COUNT, "fewer GPUs can be seen than were asked for"),
    215: (Cause.VOLUME_MOUNT, Reason.MOUNT_LOST, "the output's mount does not answer"),
    216: (Cause.OTHER, Reason.RESUME_UNKNOWN, "nobody could say where to continue"),
}
"""The codes of `forebay pod prepare`: below 210 the next attempt would meet the same, from 210 on another node may mend it."""
_BY_WORDS = re.compile(r"exit(?:ed with)? ?(?:code|status):? (\d{1,4})", re.IGNORECASE)
_CONFIG_ISSUE = re.compile(r"has condition Config\w*", re.IGNORECASE)
"""A condition that clusters let their users match, as Kubernetes' own handbook shows it."""
_DISRUPTED = re.compile(r"has condition DisruptionTarget", re.IGNORECASE)


def _wrapped(text: Text, rule: str) -> Finding | None:
    code = text.message.exit_code
    if code is None or code < 1000:
        return None
    for codes, cause, says, layer in _WRAPPED:
        if code in codes:
            return finding(cause, f"{says} (exit code {code})", rule, layer=layer, weight=20)
    if code in range(1000, 1256):
        said = f"a check before the start failed (exit code {code - 1000} of the check)"
        return finding(Cause.CONFIG, said, rule, reason=Reason.PREFLIGHT_FAILED, layer=Layer.PREFLIGHT, weight=20)
    return finding(Cause.OTHER, f"the wrapper ended with exit code {code}", rule, weight=60)


def _policy(text: Text, rule: str) -> Finding | None:
    """A Job's pod failure policy says the exit code, or that the pod was disrupted, in its own sentence."""
    if text.token != "podfailurepolicy" and "matching" not in text.flat:  # noqa: S105 a reason of a condition
        return None
    if _DISRUPTED.search(text.flat):
        return finding(
            Cause.EVICTED_NODE, "the pod was disrupted from outside", rule, reason=Reason.EVICTED_DRAIN, weight=40
        )
    if _CONFIG_ISSUE.search(text.flat):
        return finding(Cause.CONFIG, "the pod cannot start as it is configured", rule, weight=40)
    match = _BY_WORDS.search(text.flat)
    return by_code(int(match.group(1)), text, rule) if match else None


def _plain(text: Text, rule: str) -> Finding | None:
    code = text.message.exit_code
    if code is None:
        said = _BY_WORDS.search(text.flat)
        code = int(said.group(1)) if said else None
    return None if code is None else by_code(code, text, rule)


def by_code(code: int, text: Text, rule: str) -> Finding | None:
    """What a code says by itself. Some tools write a signal as a negative number."""
    code = 128 - code if -65 < code < 0 else code
    if code == 0:
        return finding(
            Cause.OTHER, "the process ended well", rule, reason=Reason.COMPLETED, next_action="nothing", weight=60
        )
    if code in PREFLIGHT:
        return _preflight(code, text, rule)
    if code in {126, 127}:
        what = "cannot be executed (no permission, or made for another processor)" if code == 126 else "was not found"
        return finding(
            Cause.CONFIG, f"the command {what}: exit code {code}", rule, reason=Reason.COMMAND_NOT_FOUND, weight=25
        )
    if code in _FROM_OUTSIDE:
        return finding(
            Cause.OTHER,
            _FROM_OUTSIDE[code],
            rule,
            reason=Reason.PROCESS_KILLED,
            layer=Layer.PROCESS,
            next_action="look for an eviction, a preemption, a lost node, a failed liveness probe or an out-of-memory kill at that time",
            weight=60,
        )
    if code in _SIGNALS:
        cause, says, action = _SIGNALS[code]
        layer = Layer.PROCESS
        return finding(cause, f"{says}; exit code {code}", rule, layer=layer, next_action=action, weight=40)
    return finding(Cause.CRASH, f"the process ended with exit code {code}{_last_words(text)}", rule, weight=45)


_LONGEST_WORDS = 200


def _last_words(text: Text) -> str:
    """The last line that a process wrote before it ended, which is where an exception stands."""
    lines = [line.strip() for line in text.message.text.splitlines() if line.strip()]
    if not lines or text.message.where != "containerStatus":
        return ""
    return f": {lines[-1][:_LONGEST_WORDS]}"


WRAPPER_RULES: tuple[MessageRule, ...] = (
    MessageRule("wrapper-exit-code", 1, _wrapped),
    MessageRule("pod-failure-policy", 2, _policy),
)
EXIT_RULES: tuple[MessageRule, ...] = (MessageRule("exit-code", 4, _plain),)


def _preflight(code: int, text: Text, rule: str) -> Finding:
    """A failed check before the start; its report stands in the termination message."""
    cause, reason, means = _CHECKS.get(code, (Cause.CONFIG, Reason.PREFLIGHT_FAILED, "a check before the start failed"))
    failed = _failed_checks(text.message.text)
    return finding(
        cause,
        f"preflight failed (exit code {code}): {'; '.join(failed) or means}",
        rule,
        reason=reason,
        layer=Layer.PREFLIGHT,
        next_action="mend what the checks name and submit again"
        if code < 210
        else "nothing for the job: it is tried again; look at the node and its mounts if it stays",
        weight=20,
    )


def _failed_checks(report: str) -> list[str]:
    """Names and sentences of the checks that failed; a message that is no report has none."""
    try:
        checks = json.loads(report).get("checks", [])
    except (ValueError, AttributeError, RecursionError):
        return []
    failed = (
        [one for one in checks if isinstance(one, dict) and one.get("status") == "fail"]
        if isinstance(checks, list)
        else []
    )
    return [f"{one.get('name', 'check')}: {one.get('message', '')}"[:300] for one in failed[:8]]
