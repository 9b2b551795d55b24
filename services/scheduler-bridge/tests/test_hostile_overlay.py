"""Attacks through `pod:` and `mounts`: whatever a job file says, its pod gets nothing that the project does not allow."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
from forebay.contracts.v1.jobs import JobSpec
from forebay.scheduler_bridge.domain import pod_layout as layout
from forebay.scheduler_bridge.domain.cluster_review import review
from forebay.scheduler_bridge.domain.manifest import Submission, render
from forebay.scheduler_bridge.domain.mounts import parse_mounts
from forebay.scheduler_bridge.domain.specification import parse_spec
from hypothesis import HealthCheck, event, example, given, settings
from hypothesis import strategies as st

from .cluster_jobs import site
from .test_pod_overlay import GUARDED, HARMLESS, LISTED, NEVER

Json = dict[str, Any]
SITE = site()
HOSTILE: list[Json] = [overlay for overlay, _ in (*GUARDED, *LISTED)] + [overlay for overlay, _, _ in NEVER]
HOSTILE.append({"imagePullSecrets": [{}]})
HARMLESS_PARTS: list[Json] = [{name: value} for name, value in HARMLESS.items()]
FIELDS = sorted(
    {name for part in (*HOSTILE, HARMLESS) for name in part}
    | {"volumeDevices", "setHostnameAsFQDN", "os", "overhead", "preemptionPolicy", "readinessGates", "resourceClaims",
       "schedulingGates", "host_network", "HostNetwork", "spec", "metadata"}
)  # fmt: skip
INNER = ("key", "operator", "value", "name", "runAsUser", "privileged", "add", "type", "namespaces", "hostPath", "path")
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-1, 70_000) | st.sampled_from(["", "Exists", "x\n", "../..", "0", "Unconfined", "*", "a"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(INNER), inner, max_size=3),
    max_leaves=8,
)  # fmt: skip
OVERLAYS = st.lists(
    st.sampled_from(HARMLESS_PARTS) | st.sampled_from(HOSTILE) | st.dictionaries(st.sampled_from(FIELDS), VALUES, max_size=2),
    max_size=5,
).map(lambda parts: {name: value for part in parts for name, value in part.items()})  # fmt: skip


def pod_of(overlay: Json | None) -> Json | None:
    """The template of the accepted job; None when it is refused."""
    values = {
        "name": "pick",
        "image": "registry.example/x@sha256:1",
        "command": ["python"],
        "datasets": [{"name": "pick-place"}],
    }
    spec = parse_spec({**values, "pod": overlay}, project="arm-lab")
    if not isinstance(spec, JobSpec) or review(spec, user="alice", project=SITE.project).problems:
        return None
    (job,) = render(Submission(spec=spec, job="pick-1", run=1, user="alice"), (), SITE)
    template: Json = job["spec"]["template"]
    json.dumps(template)
    return template


PLAIN = pod_of(None)
assert PLAIN is not None


def check_restricted(template: Json) -> None:
    """No more than the pod without an overlay may do."""
    pod, plain = template["spec"], PLAIN["spec"]  # type: ignore[index]
    for name in ("hostNetwork", "hostPID", "hostIPC", "shareProcessNamespace", "nodeName", "serviceAccountName",
                 "hostAliases", "dnsConfig", "priorityClassName", "schedulerName", "imagePullSecrets"):  # fmt: skip
        assert not pod.get(name), name
    assert set(pod) - set(plain) <= {
        "hostNetwork", "hostPID", "hostIPC", "shareProcessNamespace", "nodeSelector", "affinity", "topologySpreadConstraints", "dnsPolicy",
        "runtimeClassName", "terminationGracePeriodSeconds", "securityContext", "hostAliases", "dnsConfig", "imagePullSecrets",
    }  # fmt: skip
    assert pod["automountServiceAccountToken"] is False
    assert pod.get("runtimeClassName") in {None, "nvidia"}
    for name in ("volumes", "initContainers", "restartPolicy"):
        assert pod[name] == plain[name], name
    (container,), (own,) = pod["containers"], plain["containers"]
    for name in own:
        assert name == "env" or container[name] == own[name], name
    assert set(container) - set(own) <= {"imagePullPolicy", "securityContext", "envFrom"}
    assert not container.get("envFrom")
    assert container["env"][: len(own["env"])] == own["env"]
    for item in container["env"][len(own["env"]) :]:
        assert not re.match("FOREBAY_|CUDA_|NVIDIA_", item["name"], re.IGNORECASE)
        assert set(item.get("valueFrom", {})) <= {"fieldRef", "resourceFieldRef"}
    for context in (pod.get("securityContext", {}), container.get("securityContext", {})):
        ids = [context.get(name) for name in ("runAsUser", "runAsGroup", "fsGroup")] + context.get(
            "supplementalGroups", []
        )
        assert all(item is None or (isinstance(item, int) and item > 0) for item in ids)
        assert context.get("runAsNonRoot") in {None, True}
        assert not any(
            context.get(name) for name in ("privileged", "allowPrivilegeEscalation", "sysctls", "seLinuxOptions")
        )
        assert context.get("procMount") in {None, "Default"}
        assert not context.get("capabilities", {}).get("add")
        for profile in ("seccompProfile", "appArmorProfile"):
            assert context.get(profile, {"type": "RuntimeDefault"})["type"] == "RuntimeDefault"
    for toleration in pod["tolerations"]:
        lost = toleration["key"].startswith("node.kubernetes.io/")
        assert toleration["key"] == "nvidia.com/gpu" or (lost and toleration["tolerationSeconds"] == 60)
    assert "kubernetes.io/hostname" not in pod.get("nodeSelector", {})
    affinity = json.dumps(pod.get("affinity", {}).get("nodeAffinity", {}))
    assert "kubernetes.io/hostname" not in affinity
    assert "metadata.name" not in affinity
    assert "namespace" not in json.dumps(pod.get("affinity", {}))
    assert template["metadata"]["annotations"] == PLAIN["metadata"]["annotations"]  # type: ignore[index]
    for name, value in template["metadata"]["labels"].items():
        assert re.fullmatch(r"([A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?)?", value), name
        assert layout.DOMAIN not in name or value == PLAIN["metadata"]["labels"][name]  # type: ignore[index]


@settings(max_examples=300, suppress_health_check=[HealthCheck.too_slow], deadline=None)
@given(OVERLAYS)
@example(HARMLESS)
def test_no_overlay_makes_a_pod_that_may_do_more(overlay: Json) -> None:
    """Refused, or a pod as restricted as the one without it."""
    template = pod_of(overlay)
    event("refused" if template is None else "accepted")
    if template is not None:
        check_restricted(template)


@pytest.mark.parametrize("overlay", HOSTILE, ids=[str(item)[:60] for item in HOSTILE])
def test_each_attack_is_refused_beside_what_is_harmless(overlay: Json) -> None:
    """And what is harmless alone is accepted, so the test above is about something."""
    assert pod_of(HARMLESS) is not None
    assert pod_of({**HARMLESS, **overlay}) is None


@pytest.mark.parametrize(
    "target",
    [
        "/var/run/secrets", "/var/run/secrets/kubernetes.io/serviceaccount", "/run/secrets", "/run", "/var/run", "/var",
        "/proc", "/proc/1", "/sys/fs/cgroup", "/dev", "/dev/fuse", "/etc", "/etc/ld.so.conf.d", "/usr/bin", "/lib64", "/opt",
        "/opt/forebay/lib", "/forebay", "/forebay/run", "/forebay/key", "/forebay/output/checkpoints", "/",
        "//run//secrets", "/./run/secrets", "/work/../run/secrets", "/run/secrets/", "/work/..", "/run\n", "/work\x00",
    ],
)  # fmt: skip
def test_no_mount_hides_a_folder_of_the_system_or_of_ours(target: str) -> None:
    """Neither the folder, nor one in it, nor one that holds it, however it is written."""
    found = parse_mounts(f"team(pvc):{target}")
    assert found.problems
    assert found.mounts == ()


@pytest.mark.parametrize("target", ["/work", "/data/run", "/running", "/home/ada", "/tmp/x", "/mnt/etc", "/dev/shm"])
def test_ordinary_targets_are_taken(target: str) -> None:
    """Whole names count, not how they begin."""
    kind = "4G(memory)" if target == "/dev/shm" else "team(pvc)"
    assert not parse_mounts(f"{kind}:{target}").problems
