"""One small authority and the certificates and kubeconfigs that follow from it, made with openssl."""

from __future__ import annotations

import base64
import subprocess
from dataclasses import dataclass
from pathlib import Path

import yaml

from forebay.testcluster.errors import StepFailed
from forebay.testcluster.network import Network
from forebay.testcluster.work_folder import NODE, WorkFolder

_DAYS = "3650"
KUEUE_WEBHOOK = "kueue-webhook-service.kueue-system.svc"


@dataclass(frozen=True, slots=True)
class _Wanted:
    name: str
    common: str
    group: str = ""
    names: tuple[str, ...] = ()
    """Who the server says it is; none for clients."""


def _wanted(network: Network) -> list[_Wanted]:
    kubernetes = ("kubernetes", "kubernetes.default", "kubernetes.default.svc", "kubernetes.default.svc.cluster.local")
    return [
        _Wanted("apiserver", "kube-apiserver", names=(*kubernetes, network.api, network.node)),
        _Wanted("admin", "forebay-admin", "system:masters"),
        _Wanted("controller-manager", "system:kube-controller-manager"),
        _Wanted("scheduler", "system:kube-scheduler"),
        _Wanted("kubelet", f"system:node:{NODE}", "system:nodes"),
        _Wanted("kubelet-client", "kube-apiserver-kubelet-client", "system:masters"),
        _Wanted("front-proxy", "front-proxy"),
        _Wanted("kueue-webhook", KUEUE_WEBHOOK, names=(KUEUE_WEBHOOK,)),
    ]


def make(folder: WorkFolder, network: Network) -> None:
    at = folder.certificates
    log = folder.log("certificates")
    authority = ["-x509", "-days", _DAYS, "-subj", "/CN=forebay-testcluster", "-keyout", "ca.key", "-out", "ca.crt"]
    extensions = ["-addext", "keyUsage=critical,digitalSignature,keyEncipherment,keyCertSign"]
    _openssl(at, log, "req", *_NEW_KEY, *authority, *extensions)
    _openssl(at, log, "genpkey", "-algorithm", "EC", "-pkeyopt", "ec_paramgen_curve:P-256", "-out", "accounts.key")
    _openssl(at, log, "pkey", "-in", "accounts.key", "-pubout", "-out", "accounts.pub")
    for wanted in _wanted(network):
        _sign(at, log, wanted)
    for name in ("controller-manager", "scheduler", "kubelet"):
        write_kubeconfig(folder, network, name, folder.config / f"{name}.kubeconfig")
    write_kubeconfig(folder, network, "admin", folder.kubeconfig)


_NEW_KEY = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes")


def _sign(at: Path, log: Path, wanted: _Wanted) -> None:
    subject = (f"/O={wanted.group}" if wanted.group else "") + f"/CN={wanted.common}"
    request = ["-subj", subject, "-keyout", f"{wanted.name}.key", "-out", f"{wanted.name}.csr"]
    _openssl(at, log, "req", "-new", *_NEW_KEY, *request)
    lines = [
        "basicConstraints=critical,CA:FALSE",
        "keyUsage=critical,digitalSignature,keyEncipherment",
        f"extendedKeyUsage={'serverAuth' if wanted.names else 'clientAuth'}",
    ]
    if wanted.names:
        kinds = [f"{'IP' if name[0].isdigit() else 'DNS'}:{name}" for name in wanted.names]
        lines.append(f"subjectAltName={','.join(kinds)}")
    (at / f"{wanted.name}.ext").write_text("\n".join(lines) + "\n", encoding="utf-8")
    signing = ["-CA", "ca.crt", "-CAkey", "ca.key", "-CAcreateserial", "-days", _DAYS]
    files = ["-in", f"{wanted.name}.csr", "-extfile", f"{wanted.name}.ext", "-out", f"{wanted.name}.crt"]
    _openssl(at, log, "x509", "-req", *files, *signing)


def _openssl(at: Path, log: Path, *words: str) -> None:
    with log.open("ab") as output:
        done = subprocess.run(  # noqa: S603 our own words
            ["openssl", *words],  # noqa: S607 from the PATH, as the rest
            cwd=at,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            check=False,
        )
    if done.returncode:
        msg = f"openssl {words[0]} failed (exit code {done.returncode})"
        raise StepFailed(msg, log)


def _base64(path: Path) -> str:
    return base64.b64encode(path.read_bytes()).decode()


def write_kubeconfig(folder: WorkFolder, network: Network, name: str, to: Path) -> None:
    """A kubeconfig for one of the certificates, which it holds itself."""
    at = folder.certificates
    to.touch(0o600)
    content = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [
            {
                "name": "forebay-testcluster",
                "cluster": {
                    "server": f"https://{network.api}:443",
                    "certificate-authority-data": _base64(at / "ca.crt"),
                },
            }
        ],
        "users": [
            {
                "name": name,
                "user": {
                    "client-certificate-data": _base64(at / f"{name}.crt"),
                    "client-key-data": _base64(at / f"{name}.key"),
                },
            }
        ],
        "contexts": [{"name": name, "context": {"cluster": "forebay-testcluster", "user": name}}],
        "current-context": name,
    }
    to.write_text(yaml.safe_dump(content), encoding="utf-8")


def kueue_secret(folder: WorkFolder) -> dict[str, str]:
    """The content of Kueue's certificate Secret; present before Kueue starts, it need not wait for its own."""
    at = folder.certificates
    files = {"ca.crt": "ca.crt", "ca.key": "ca.key", "tls.crt": "kueue-webhook.crt", "tls.key": "kueue-webhook.key"}
    return {key: _base64(at / name) for key, name in files.items()}
