"""What holds for every message that a grammar can make: any order, any count, any wording of head and tail."""

from __future__ import annotations

import pytest
from forebay.scheduler_bridge.domain.kubernetes.classify import classify
from forebay.scheduler_bridge.domain.kubernetes.histogram import parse
from forebay.scheduler_bridge.domain.kubernetes.vocabulary import Cause, Finding, Message
from hypothesis import given, settings
from hypothesis import strategies as st

BACKGROUND = (
    "node(s) had untolerated taint {node-role.kubernetes.io/control-plane: }",
    "node(s) had taint {node-role.kubernetes.io/master: }, that the pod didn't tolerate",
    "node(s) didn't match Pod's node affinity/selector",
    "node(s) didn't match node selector",
    "node(s) were unschedulable",
    "node(s) had untolerated taint(s)",
)
SCARCE = {
    "nvidia.com/gpu": Cause.GPU_SHORTAGE,
    "nvidia.com/mig-1g.10gb": Cause.GPU_SHORTAGE,
    "huawei.com/Ascend910": Cause.GPU_SHORTAGE,
    "aliyun.com/gpu-mem": Cause.GPU_SHORTAGE,
    "cpu": Cause.CPU_MEM_SHORTAGE,
    "memory": Cause.CPU_MEM_SHORTAGE,
    "ephemeral-storage": Cause.CPU_MEM_SHORTAGE,
    "hugepages-2Mi": Cause.CPU_MEM_SHORTAGE,
}
TAILS = (
    "",
    ". preemption: 0/{nodes} nodes are available: {short} No preemption victims found for incoming pod, {rest} Preemption is not helpful for scheduling.",
    ". preemption: 0/{nodes} nodes are available: {nodes} Preemption is not helpful for scheduling..",
    ". no new claims to deallocate, preemption: 0/{nodes} nodes are available: {nodes} Preemption is not helpful for scheduling.",
    ". still not schedulable, preemption: 0/{nodes} nodes are available: {nodes} Preemption is not helpful for scheduling.",
    ". preemption: not eligible due to preemptionPolicy=Never..",
    ". preemption: not eligible due to a terminating pod on the nominated node..",
)
HEADS = ("0/{nodes} nodes are available: ", "0/{nodes} nodes are unavailable: ", "all nodes are unavailable: ")
PLACES = (("condition", "Unschedulable"), ("event", "FailedScheduling"))
_MANY = settings(max_examples=150, deadline=None)


def scheduler_says(text: str, place: tuple[str, str] = PLACES[0]) -> Finding:
    return classify(Message(where=place[0], reason=place[1], text=text))


@st.composite
def histograms(draw: st.DrawFn) -> tuple[str, str, int]:
    """(message, what is scarce, number of nodes): one shortage, and whatever keeps the pod from the other nodes."""
    scarce, short = draw(st.sampled_from(sorted(SCARCE))), draw(st.integers(1, 400))
    others = draw(
        st.lists(st.tuples(st.sampled_from(BACKGROUND), st.integers(1, 400)), max_size=4, unique_by=lambda one: one[0])
    )
    said = [f"{short} Insufficient {scarce}", *(f"{count} {text}" for text, count in others)]
    rest = sum(count for _, count in others)
    head, tail = (
        draw(st.sampled_from(forms)).format(nodes=short + rest, short=short, rest=rest) for forms in (HEADS, TAILS)
    )
    return head + ", ".join(draw(st.permutations(said))) + tail, scarce, short + rest


@given(made=histograms(), place=st.sampled_from(PLACES))
@_MANY
def test_the_nodes_that_could_take_the_pod_decide(made: tuple[str, str, int], place: tuple[str, str]) -> None:
    """Whatever rules other nodes out, in any order and wording: what is short on the rest is the cause, and "never" is not said."""
    text, scarce, nodes = made
    found, histogram = scheduler_says(text, place), parse(text)
    assert (found.cause, found.need, found.fits) == (SCARCE[scarce], scarce, "unknown")
    assert histogram is not None
    assert sum(reason.count or 0 for reason in histogram.reasons) == histogram.nodes == nodes


@given(
    constraint=st.sampled_from(BACKGROUND),
    nodes=st.integers(2, 300),
    scarce=st.sampled_from(sorted(SCARCE)),
    data=st.data(),
)
@_MANY
def test_a_constraint_that_holds_everywhere_decides(
    constraint: str, nodes: int, scarce: str, data: st.DataObject
) -> None:
    """Reasons overlap: a shortage on some of the nodes says nothing when every node is ruled out anyway."""
    some = data.draw(st.integers(1, nodes - 1))
    found = scheduler_says(f"0/{nodes} nodes are available: {nodes} {constraint}, {some} Insufficient {scarce}.")
    assert found.cause is Cause.AFFINITY_TAINT


@given(
    head=st.sampled_from(
        (
            "No nodes are available that match all of the following predicates:: ",
            "No nodes are available that match all of the predicates: ",
            "pod (train-0) failed to fit in any node\nfit failure summary on nodes : ",
        )
    ),
    scarce=st.sampled_from(("cpu", "memory", "alpha.kubernetes.io/nvidia-gpu")),
    short=st.integers(2, 90),
    first=st.booleans(),
)
@_MANY
def test_counts_behind_their_reasons(head: str, scarce: str, short: int, *, first: bool) -> None:
    """The form of Kubernetes up to 1.9, with either head and in either order."""
    reasons = [f"Insufficient {scarce} ({short})", "PodToleratesNodeTaints (1)"]
    text = f"{head}{', '.join(reasons if first else reversed(reasons))}."
    expected = Cause.GPU_SHORTAGE if "gpu" in scarce else Cause.CPU_MEM_SHORTAGE
    assert scheduler_says(text, PLACES[1]).cause is expected


@pytest.mark.parametrize("verb", ["get", "list", "create", "patch", "deletecollection"])
@pytest.mark.parametrize(
    "resource", ["pods", "volumeattachments/status", "persistentvolumeclaims", "jobs", "workloads"]
)
def test_a_missing_permission_is_that_whatever_it_is_about(verb: str, resource: str) -> None:
    """`User … cannot VERB resource …` is a matter of roles, also for volumes."""
    said = f'{resource} "x" is forbidden: User "system:serviceaccount:a:b" cannot {verb} resource "{resource}" in API group "g" at the cluster scope'
    assert classify(Message(where="apiError", reason="Forbidden", text=said)).cause is Cause.PERMISSION


@pytest.mark.parametrize("gang", ["1 Pending, 2 minAvailable; Pending: 1 Unschedulable", "4 Pending, 4 minAvailable"])
@pytest.mark.parametrize("where", ["", "In hyperNode s0: "])
@pytest.mark.parametrize(("scarce", "cause"), sorted(SCARCE.items()))
def test_a_gang_waits_for_what_its_first_pod_waits_for(gang: str, where: str, scarce: str, cause: Cause) -> None:
    """Volcano repeats the first pod's own reason behind its count of the gang."""
    said = f"1/1 tasks in gang unschedulable: pod group is not ready, {gang}. Origin reason is train-0: {where}"
    for head in ("0/3 nodes are unavailable", "all nodes are unavailable"):
        assert scheduler_says(f"{said}{head}: 3 Insufficient {scarce}.", PLACES[1]).cause is cause


@given(names=st.lists(st.from_regex(r"[a-z]([a-z0-9\-]{0,8}[a-z0-9])?", fullmatch=True), min_size=1, max_size=4))
@_MANY
def test_rejected_checks_are_named_in_every_wording(names: list[str]) -> None:
    """Kueue 0.9 to 0.19 word the end of a workload by its admission checks in three ways."""
    listed, quoted = ",".join(names), "; ".join(f'"{name}"' for name in names)
    for reason, text in (
        (
            "DeactivatedDueToAdmissionCheck",
            f"The workload is deactivated due to Admission check(s): {listed}, were rejected",
        ),
        (
            "InactiveWorkloadAdmissionCheck",
            f"The workload is deactivated due to Admission check(s): {listed}, were rejected",
        ),
        ("Deactivated", f"The workload is deactivated due to AdmissionChecks in Rejected state: {quoted}"),
    ):
        found = classify(Message(where="condition", reason=reason, text=text, object="Workload Evicted=True"))
        assert found.cause is Cause.ADMISSION_CHECK
        assert names[0] in found.sentence


@pytest.mark.parametrize("bound", ["above the limitRange max", "below the limitRange min"])
@pytest.mark.parametrize("reason", ["Pending", "Inadmissible", "Misconfigured"])
def test_a_limit_range_is_no_matter_of_the_queue(bound: str, reason: str) -> None:
    """Kueue checks LimitRanges before it admits: the pod is too large or too small, the queue is well."""
    said = f'resources didn\'t satisfy LimitRange constraints: podSets[main].template.spec.containers[0]: Invalid value: ["memory"]: requests must not be {bound}'
    found = classify(Message(where="condition", reason=reason, text=said, object="Workload QuotaReserved=False"))
    assert found.cause is Cause.ADMISSION_DENIED
