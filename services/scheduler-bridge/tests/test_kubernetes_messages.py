"""One message, one cause: every form by its grammar, old and new, and no confident wrong "never"."""

from __future__ import annotations

import json
import time
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from forebay.contracts.reasons import Layer, Reason
from forebay.scheduler_bridge.domain.kubernetes.classify import RULES, classify, classify_message
from forebay.scheduler_bridge.domain.kubernetes.histogram import Kind, parse
from forebay.scheduler_bridge.domain.kubernetes.quantities import amount
from forebay.scheduler_bridge.domain.kubernetes.vocabulary import LAYERS, NEXT, REASONS, Cause, Finding, Message
from hypothesis import given, settings
from hypothesis import strategies as st


@dataclass(frozen=True, slots=True)
class Line:
    """A message as a component prints it, with its true cause."""

    cause: str
    reason: str
    text: str
    where: str
    code: int | None
    object: str


def _line(found: dict[str, Any]) -> Line:
    names = ("true_cause", "reason", "message", "where", "exit_code", "object")
    cause, reason, text, where, code, about = (found.get(name) for name in names)
    return Line(cause or "", reason or "", text or "", where or "", code, about or "")


LINES = Path(__file__).with_name("kubernetes_lines.jsonl")
"""Written from the formats of the sources, one line for each form."""
ALL = tuple(_line(json.loads(line)) for line in LINES.read_text(encoding="utf-8").splitlines())


def judged(line: Line) -> Finding:
    return classify(
        Message(where=line.where, reason=line.reason, text=line.text, exit_code=line.code, object=line.object)
    )


@pytest.mark.parametrize("line", ALL, ids=lambda line: f"{line.cause}-{line.reason}")
def test_each_form_has_its_cause(line: Line) -> None:
    """Every form of every component is read as what it means, with something to do next."""
    found = judged(line)
    assert (found.cause, bool(found.next_action), bool(found.sentence)) == (line.cause, True, True), found.rule


def test_every_rule_is_shown_by_a_line_and_named_once() -> None:
    """No rule without a test, no two rules of one name."""
    spoken = {judged(line).rule for line in ALL}
    assert [rule.id for rule in RULES if rule.id not in spoken] == []
    assert [name for name, times in Counter(rule.name for rule in RULES).items() if times > 1] == []


def test_the_vocabulary_is_complete() -> None:
    """Each cause has a layer, a code and a next step."""
    assert set(LAYERS) == set(REASONS) == set(NEXT) == set(Cause)


def test_never_is_said_only_where_the_text_compares_both_numbers() -> None:
    """A histogram alone proves nothing about tomorrow's nodes; a request above a maximum does."""
    said = {judged(line).rule for line in ALL if judged(line).fits == "never"}
    assert said == {"kueue-flavors@2", "larger-than-any-node@1"}
    over = 'pods "x" is forbidden: exceeded quota: q, requested: cpu={}, used: cpu=2, limited: cpu=8'
    assert classify(Message(where="apiError", reason="Forbidden", text=over.format("9"))).fits == "never"
    busy = classify(Message(where="apiError", reason="Forbidden", text=over.format("7500m")))
    assert (busy.fits, busy.have) == ("unknown", "cpu=2 of 8 used")


def test_the_histogram_is_read_in_its_parts() -> None:
    """Commas inside taints, post filters and both buckets of the preemption part are kept apart."""
    found = parse(
        "0/13 nodes are available: 2 node(s) had taint {a/b: }, that the pod didn't tolerate, 3 Insufficient nvidia.com/gpu, "
        "8 node(s) didn't match Pod's node affinity/selector. no new claims to deallocate, preemption: 0/13 nodes are available: "
        "10 Preemption is not helpful for scheduling, 3 No preemption victims found for incoming pod.."
    )
    assert found is not None
    assert [(reason.count, reason.kind) for reason in found.reasons] == [
        (2, Kind.TAINT),
        (3, Kind.GPU),
        (8, Kind.SELECTOR),
    ]
    assert (found.nodes, found.not_helpful, found.no_victims, found.post_filter) == (
        13,
        10,
        3,
        "no new claims to deallocate",
    )


def test_counts_behind_their_reason_and_reasons_without_count() -> None:
    """Up to 1.9 the count stands in brackets; what stopped the pod before any node has none."""
    old = parse(
        "No nodes are available that match all of the predicates: Insufficient cpu (3), PodToleratesNodeTaints (1)."
    )
    assert old is not None
    assert [reason.count for reason in old.reasons] == [3, 1]
    early = parse(
        '0/5 nodes are available: persistentvolumeclaim "a, b" not found. preemption: 0/5 nodes are available: 5 x.'
    )
    assert early is not None
    assert [(reason.count, reason.kind) for reason in early.uncounted] == [(None, Kind.VOLUME_UNBOUND)]


def test_a_taint_on_gpu_nodes_is_named() -> None:
    """Control-plane taints and cordons are background; the taint that keeps the pod from the GPUs is the sentence."""
    found = classify(
        Message(
            reason="Unschedulable",
            text="0/9 nodes are available: 3 node(s) had untolerated taint {node-role.kubernetes.io/control-plane: }, "
            "2 node(s) were unschedulable, 4 node(s) had untolerated taint {nvidia.com/gpu: true}.",
        )
    )
    assert (found.cause, found.need) == (Cause.AFFINITY_TAINT, "nvidia.com/gpu")
    assert "tolerate nvidia.com/gpu" in found.next_action


@pytest.mark.parametrize(
    ("code", "cause", "layer", "reason"),
    [
        (207, Cause.CONFIG, Layer.PREFLIGHT, Reason.SHM_TOO_SMALL),
        (211, Cause.VOLUME_MOUNT, Layer.PREFLIGHT, Reason.DATA_UNREADABLE),
        (214, Cause.GPU_SHORTAGE, Layer.PREFLIGHT, Reason.GPU_COUNT),
        (219, Cause.CONFIG, Layer.PREFLIGHT, Reason.PREFLIGHT_FAILED),
        (137, Cause.OTHER, Layer.PROCESS, Reason.PROCESS_KILLED),
        (143, Cause.OTHER, Layer.PROCESS, Reason.PROCESS_KILLED),
        (-9, Cause.OTHER, Layer.PROCESS, Reason.PROCESS_KILLED),
        (-11, Cause.CRASH, Layer.PROCESS, Reason.PROCESS_FAILED),
        (135, Cause.CRASH, Layer.PROCESS, Reason.PROCESS_FAILED),
        (127, Cause.CONFIG, Layer.CONFIG, Reason.COMMAND_NOT_FOUND),
    ],
)
def test_exit_codes(code: int, cause: Cause, layer: Layer, reason: Reason) -> None:
    """Preflight has a layer of its own, and a signal from outside proves nothing about memory."""
    found = classify(Message(where="containerStatus", reason="Error", exit_code=code))
    assert (found.cause, found.layer, found.reason) == (cause, layer, reason)


def test_the_report_of_preflight_is_read() -> None:
    """What failed is said with its own words; what passed is not."""
    report = '{"attempt":1,"checks":[{"name":"gpu","status":"fail","message":"1 of 2"},{"name":"data","status":"pass","message":"fine"}]}'
    found = classify(Message(where="containerStatus", reason="Error", text=report, exit_code=214))
    assert "gpu: 1 of 2" in found.sentence
    assert "fine" not in found.sentence


def test_quantities() -> None:
    """As Kubernetes writes them; what is none is None."""
    assert [amount(text) for text in ("500m", "1Ki", "2e3", "1.5")] == [amount("0.5"), 1024, 2000, amount("1500m")]
    assert [amount(text) for text in ("", "x", "1Zi", None, True, "--1")] == [None] * 6


@settings(max_examples=100, deadline=None)
@given(text=st.text(max_size=400), reason=st.text(max_size=30), code=st.none() | st.integers())
def test_any_text_gets_an_answer(text: str, reason: str, code: int | None) -> None:
    """No message, however odd, makes a rule fail."""
    assert classify_message(reason=reason, message=text, exit_code=code) in Cause


@pytest.mark.parametrize(
    "piece", ["a ", "untolerated taint {", 'pull image: "a/b" ', "0/3 nodes are available: 1 x, ", "("]
)
def test_hostile_texts_are_quick(piece: str) -> None:
    """A text made to keep expressions busy costs a moment, not minutes."""
    start = time.process_time()
    classify(Message(reason="Failed", text=piece * 20_000))
    assert time.process_time() - start < 5
