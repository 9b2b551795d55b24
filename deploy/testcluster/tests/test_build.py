"""What is built, by which names it is kept, and how it is told its version."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from forebay.testcluster import build, images, kueue
from forebay.testcluster.build import FAMILIES, Family


def family(name: str) -> Family:
    return next(found for found in FAMILIES if found.name == name)


@pytest.mark.parametrize("found", FAMILIES, ids=lambda found: found.name)
def test_every_version_is_pinned_with_its_content(found: Family) -> None:
    """go.mod names it, go.sum holds it, and the cache folder's name has both."""
    version = found.version
    assert f"{found.module} {version} h1:" in (found.folder / "go.sum").read_text(encoding="utf-8")
    assert found.cache.name.startswith(f"testcluster-{found.name}-{version}-")


def test_kubernetes_says_its_version() -> None:
    """A kubelet that says v0.0.0 is refused by its API server's checks."""
    flags = family("kubernetes").flags()
    assert f"gitVersion={family('kubernetes').version}" in flags
    assert "gitMajor=1 " in flags


def test_all_staging_modules_are_of_the_same_release() -> None:
    """k8s.io/api v0.N.P goes with k8s.io/kubernetes v1.N.P."""
    content = (family("kubernetes").folder / "go.mod").read_text(encoding="utf-8")
    replaced = [line.split()[-1] for line in content.splitlines() if "=>" in line]
    assert len(replaced) > 25
    assert set(replaced) == {family("kubernetes").version.replace("v1.", "v0.")}


def test_programs_have_names_of_their_own() -> None:
    names = [name for found in FAMILIES for name in found.packages]
    assert len(names) == len(set(names))
    assert set(names) < set(build.wanted())


def test_kueues_own_objects_are_made_to_fit(tmp_path: Path) -> None:
    """Definitions come first; the pod has our image, is not root by number, and waits for no certificate."""
    manager = {"image": "there", "readinessProbe": {}, "livenessProbe": {}, "volumeMounts": []}
    volumes = [{"name": "visibility", "emptyDir": {}}]
    pod = {"securityContext": {"runAsNonRoot": True}, "containers": [manager], "volumes": volumes}
    conversion: dict[str, object] = {"conversion": {"webhook": {"clientConfig": {}}}}
    rendered = tmp_path / "objects.json"
    rendered.write_text(
        "\n---\n".join(
            json.dumps(item)
            for item in (
                {"kind": "Deployment", "metadata": {"name": kueue.DEPLOYMENT}, "spec": {"template": {"spec": pod}}},
                {"kind": "Secret", "metadata": {"name": "kueue-webhook-server-cert"}},
                {"kind": "ConfigMap", "metadata": {"name": "kueue-manager-config"}, "data": {}},
                {"kind": "CustomResourceDefinition", "metadata": {"name": "a"}, "spec": conversion},
                {"kind": "Namespace", "metadata": {"name": kueue.NAMESPACE}},
            )
        ),
        encoding="utf-8",
    )
    found = kueue.objects(rendered, {"tls.crt": "c", "ca.crt": "a"}, {"AdmissionGatedBy": True})
    assert [item["kind"] for item in found[:2]] == ["Namespace", "CustomResourceDefinition"]
    by_kind = {item["kind"]: item for item in found}
    (fitted,) = by_kind["Deployment"]["spec"]["template"]["spec"]["containers"]
    assert fitted["image"] == images.KUEUE
    assert by_kind["Deployment"]["spec"]["template"]["spec"]["securityContext"]["runAsUser"] == 65532
    assert by_kind["Secret"]["data"]["tls.crt"] == "c"
    definition = by_kind["CustomResourceDefinition"]["spec"]
    assert definition["conversion"]["webhook"]["clientConfig"] == {"caBundle": "a"}
    assert "AdmissionGatedBy: true" in by_kind["ConfigMap"]["data"]["controller_manager_config.yaml"]


def test_only_webhooks_that_serve_jobs_stay(tmp_path: Path) -> None:
    """A webhook for pods would stand in the way of every write of a pod."""
    hooks = [
        {"name": name, "rules": [{"apiGroups": [group]}], "clientConfig": {}}
        for name, group in (("vjob", "batch"), ("vpod", ""))
    ]
    rendered = tmp_path / "objects.json"
    item = {"kind": "ValidatingWebhookConfiguration", "metadata": {"name": "v"}, "webhooks": hooks}
    rendered.write_text(json.dumps(item), encoding="utf-8")
    (found,) = kueue.objects(rendered, {"ca.crt": "a"}, {})
    assert [(hook["name"], hook["clientConfig"]) for hook in found["webhooks"]] == [("vjob", {"caBundle": "a"})]
