"""A real control plane on loopback: etcd, kube-apiserver, and what is wanted of the rest.

Everything lives in one temporary folder and ends with the context. The audit log holds every write
with who made it, which is what predictions are held against.
"""

import contextlib
import http.client
import json
import os
import secrets
import shutil
import signal
import socket
import ssl
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

from tests.real.audit_policy import audit_policy

T = TypeVar("T")
ASSETS = "KUBEBUILDER_ASSETS"
MANAGER = "NODELIFE_MANAGER"
"""The kube-controller-manager of another release, by its path (.ci/kube-manager builds one)."""
PROGRAMS = ("etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler", "kubectl")
START_TIMEOUT_S = 90


def assets() -> Path | None:
    """The folder with all the programs, or None."""
    folder = os.environ.get(ASSETS)
    if not folder:
        return None
    path = Path(folder)
    return path if all(os.access(path / program, os.X_OK) for program in PROGRAMS) else None


class Refused(Exception):
    """The API server answered with an error status."""

    def __init__(self, code: int, body: str) -> None:
        super().__init__(f"{code}: {body[:400]}")
        self.code = code
        self.body = body


class Api:
    """A small client of the API server: JSON in, JSON out. Raises Refused.

    Each thread keeps one connection: a TLS handshake costs more than most requests.
    """

    def __init__(self, server: str, token: str) -> None:
        self.server = server
        self.token = token
        self._tls = ssl.create_default_context()
        self._tls.check_hostname = False
        self._tls.verify_mode = ssl.CERT_NONE  # the server made its certificate a moment ago
        self._kept = threading.local()

    def call(
        self,
        method: str,
        path: str,
        body: Any = None,
        content_type: str = "application/json",
        user: str = "",
    ) -> Any:
        """One request. Raises OSError where the server cannot be reached."""
        headers = {
            "Authorization": f"Bearer {self.token}",
            "Content-Type": content_type,
            "Accept": "application/json",
            "User-Agent": user or "tests",
        }
        # compact, as Go writes it: a ControllerRevision's data are kept byte by byte
        sent = None if body is None else json.dumps(body, separators=(",", ":")).encode()
        try:
            status, content = self._exchange(method, path, sent, headers)
        except http.client.HTTPException as error:
            raise ConnectionError(str(error)) from error
        if status >= 400:
            raise Refused(status, content.decode(errors="replace"))
        if not content.lstrip().startswith((b"{", b"[")):
            return content.decode()
        return json.loads(content)

    def exchange(
        self, method: str, path: str, body: bytes | None, content_type: str
    ) -> tuple[int, bytes]:
        """One request with these very bytes; status and content."""
        headers = {
            "Authorization": f"Bearer {self.token}",
            "Content-Type": content_type,
            "Accept": "application/json",
        }
        return self._exchange(method, path, body, headers)

    def _exchange(
        self, method: str, path: str, body: bytes | None, headers: dict[str, str]
    ) -> tuple[int, bytes]:
        """Status and content. A kept connection that the server has closed is made anew."""
        kept: http.client.HTTPSConnection | None = getattr(self._kept, "connection", None)
        self._kept.connection = None
        connection = kept or self._connect()
        try:
            connection.request(method, path, body, headers)
            answer = connection.getresponse()
            content = answer.read()
        except (ConnectionError, ssl.SSLError):
            connection.close()
            if kept is None:
                raise
            return self._exchange(method, path, body, headers)
        except BaseException:
            connection.close()
            raise
        self._kept.connection = connection
        return answer.status, content

    def _connect(self) -> http.client.HTTPSConnection:
        host = self.server.removeprefix("https://")
        return http.client.HTTPSConnection(host, timeout=30, context=self._tls)

    def get(self, path: str) -> Any:
        """GET."""
        return self.call("GET", path)

    def create(self, path: str, obj: Mapping[str, Any]) -> Any:
        """POST."""
        return self.call("POST", path, obj)

    def merge(self, path: str, patch: Mapping[str, Any], user: str = "") -> Any:
        """A JSON merge patch."""
        return self.call("PATCH", path, patch, "application/merge-patch+json", user)

    def strategic(self, path: str, patch: Mapping[str, Any], user: str = "") -> Any:
        """A strategic merge patch."""
        return self.call("PATCH", path, patch, "application/strategic-merge-patch+json", user)

    def delete(self, path: str, options: Mapping[str, Any] | None = None) -> Any:
        """DELETE."""
        return self.call("DELETE", path, options)


class ControlPlane:
    """Running programs. `start_*` and `stop` may be called again, as in an outage."""

    def __init__(self, folder: Path, programs: Path) -> None:
        self.folder = folder
        self.programs = programs
        self.audit_log = folder / "audit.log"
        self.kubeconfig = self.manager_kubeconfig = folder / "kubeconfig"
        self.token = secrets.token_urlsafe(24)
        self.audit_policy = audit_policy(heartbeats=False)
        self._etcd_port, self._peer_port, self.port = free_ports(3)
        self.api = Api(f"https://127.0.0.1:{self.port}", self.token)
        self._running: dict[str, subprocess.Popen[bytes]] = {}
        self._flags: dict[str, list[str]] = {}
        self._signalled: set[str] = set()

    def start_etcd(self) -> None:
        """The store."""
        client = f"http://127.0.0.1:{self._etcd_port}"
        peer = f"http://127.0.0.1:{self._peer_port}"
        self._start(
            "etcd",
            f"--data-dir={self.folder}/etcd",
            f"--listen-client-urls={client}",
            f"--advertise-client-urls={client}",
            f"--listen-peer-urls={peer}",
            f"--initial-advertise-peer-urls={peer}",
            f"--initial-cluster=default={peer}",
            "--unsafe-no-fsync",
            "--log-level=error",
        )

    def start_api_server(self, *flags: str) -> None:
        """The API server; returns when it is ready. `flags` are added to its usual ones."""
        self._write_files()
        folder = self.folder
        self._start(
            "kube-apiserver",
            f"--etcd-servers=http://127.0.0.1:{self._etcd_port}",
            f"--secure-port={self.port}",
            "--bind-address=127.0.0.1",
            "--endpoint-reconciler-type=none",  # since v1.37 it refuses an address of loopback
            f"--cert-dir={folder}/certificates",
            f"--token-auth-file={folder}/tokens.csv",
            "--authorization-mode=RBAC",
            "--service-account-issuer=https://kubernetes.default.svc",
            f"--service-account-key-file={folder}/sa.key",
            f"--service-account-signing-key-file={folder}/sa.key",
            "--service-cluster-ip-range=10.0.0.0/24",
            "--disable-admission-plugins=ServiceAccount",
            f"--audit-policy-file={folder}/audit.json",
            f"--audit-log-path={self.audit_log}",
            "--audit-log-maxsize=100000",  # MB: else it begins anew after 100
            "--allow-privileged=true",
            *flags,
        )
        self._wait("the API server", self._ready)

    def start_controller_manager(self, *flags: str) -> None:
        """kube-controller-manager; returns when it leads, which it does once the Lease of one that
        was there before it is over.

        With upstream's own terms of its Lease: one that does not renew within 10 s ends itself, and
        a busy machine now and then takes more than the 2 s that were given to it here once.
        """
        (port,) = free_ports(1)
        path = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases/kube-controller-manager"
        before = self._holder(path)
        self._start(
            "kube-controller-manager",
            f"--kubeconfig={self.manager_kubeconfig}",
            f"--service-account-private-key-file={self.folder}/sa.key",
            f"--secure-port={port}",
            "--bind-address=127.0.0.1",
            f"--cert-dir={self.folder}/kcm",
            "--use-service-account-credentials=false",
            *flags,
        )
        self._wait("the controller manager", lambda: self._holder(path) not in ("", before))

    def route_manager_through(self, server: str) -> None:
        """From its next start on the controller manager talks to a proxy before the API server."""
        config = json.loads(self.kubeconfig.read_text())
        config["clusters"][0]["cluster"]["server"] = server
        self.manager_kubeconfig = self.folder / "manager-kubeconfig"
        self.manager_kubeconfig.touch(0o600)
        self.manager_kubeconfig.write_text(json.dumps(config))

    def start_scheduler(self) -> None:
        """kube-scheduler."""
        (port,) = free_ports(1)
        self._start(
            "kube-scheduler",
            f"--kubeconfig={self.kubeconfig}",
            f"--secure-port={port}",
            "--bind-address=127.0.0.1",
            "--leader-elect=false",
        )

    def stop(self, program: str) -> None:
        """End one program, and wait for its end."""
        process = self._running.pop(program, None)
        if process is None:
            return
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(15)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()

    def signal(self, program: str, number: signal.Signals) -> None:
        """Send a running program a signal, such as SIGSTOP. It may end of it."""
        self._signalled.add(program)
        self._running[program].send_signal(number)

    def assert_running(self) -> None:
        """Raises AssertionError with the last words of a program that ended by itself: what a test
        says of a cluster without its controllers is wrong.
        """
        for program, process in self._running.items():
            if process.poll() is not None and program not in self._signalled:
                raise AssertionError(f"{program} ended by itself:\n{self.log(program)}")

    def pid(self, program: str) -> int:
        """The process of a running program."""
        return self._running[program].pid

    def restart(self, program: str) -> None:
        """Stop it and start it with the same flags."""
        self.stop(program)
        self._start(program, *self._flags[program])
        if program == "kube-apiserver":
            self._wait("the API server", self._ready)

    def kubectl(self, *words: str, check: bool = True, timeout: float = 120) -> str:
        """Run the real kubectl; its output, standard error last."""
        command = [str(self.programs / "kubectl"), f"--kubeconfig={self.kubeconfig}", *words]
        done = subprocess.run(command, capture_output=True, text=True, timeout=timeout, check=False)
        if check and done.returncode:
            raise AssertionError(f"{' '.join(words)}: {done.stdout}{done.stderr}")
        return done.stdout + done.stderr

    def account_kubeconfig(
        self, account: str, namespace: str, path: Path, *, server: str = "", ca: str = ""
    ) -> Path:
        """Write a kubeconfig of a ServiceAccount with a token of its own, TLS verified; its path.

        `server`, `ca`: a proxy before the API server.
        """
        words = ("create", "token", account, "-n", namespace, "--duration=2h")
        token = self.kubectl(*words).strip()
        config = json.loads(self.kubeconfig.read_text())
        config["clusters"][0]["cluster"] = {
            "server": server or self.api.server,
            "certificate-authority": ca or str(self.folder / "certificates" / "apiserver.crt"),
        }
        config["users"][0]["user"] = {"token": token}
        path.touch(0o600)
        path.write_text(json.dumps(config))
        return path

    def audit(self) -> list[dict[str, Any]]:
        """The writes so far, oldest first."""
        if not self.audit_log.exists():
            return []
        lines = self.audit_log.read_text().splitlines()
        return [json.loads(line) for line in lines if line.endswith("}")]

    def close(self) -> None:
        """End everything."""
        for program in reversed(PROGRAMS):
            self.stop(program)

    def log(self, program: str) -> str:
        """The last lines that the program wrote."""
        path = self.folder / f"{program}.log"
        return path.read_text(errors="replace")[-3000:] if path.exists() else ""

    def _write_files(self) -> None:
        folder = self.folder
        if (folder / "sa.key").exists():
            return
        key = ["openssl", "ecparam", "-name", "prime256v1", "-genkey", "-noout"]
        with (folder / "sa.key").open("wb") as out:
            subprocess.run(key, stdout=out, check=True)
        (folder / "tokens.csv").write_text(f'{self.token},admin,admin,"system:masters"\n')
        (folder / "audit.json").write_text(json.dumps(self.audit_policy))
        config = {
            "apiVersion": "v1",
            "kind": "Config",
            "current-context": "real",
            "clusters": [
                {
                    "name": "real",
                    "cluster": {"server": self.api.server, "insecure-skip-tls-verify": True},
                }
            ],
            "users": [{"name": "admin", "user": {"token": self.token}}],
            "contexts": [{"name": "real", "context": {"cluster": "real", "user": "admin"}}],
        }
        self.kubeconfig.touch(0o600)
        self.kubeconfig.write_text(json.dumps(config))

    def _path(self, program: str) -> str:
        other = os.environ.get(MANAGER) if program == "kube-controller-manager" else None
        return other or str(self.programs / program)

    def _ready(self) -> bool:
        return self.api.call("GET", "/readyz") == "ok"

    def _holder(self, path: str) -> str:
        try:
            return str(self.api.get(path)["spec"].get("holderIdentity") or "")
        except Refused:
            return ""

    def _start(self, program: str, *flags: str) -> None:
        self._flags[program] = list(flags)
        with (self.folder / f"{program}.log").open("ab") as log:
            self._running[program] = subprocess.Popen(
                [self._path(program), *flags],
                stdout=log,
                stderr=log,
                stdin=subprocess.DEVNULL,
                cwd=self.folder,
            )

    def _wait(self, what: str, is_there: Any) -> None:
        deadline = time.monotonic() + START_TIMEOUT_S
        while time.monotonic() < deadline:
            self.assert_running()
            with contextlib.suppress(OSError, Refused, ValueError):
                if is_there():
                    return
            time.sleep(0.2)
        logs = "\n".join(f"{p}: {self.log(p)}" for p in self._running)
        raise AssertionError(f"{what} was not ready in {START_TIMEOUT_S}s\n{logs}")


@contextlib.contextmanager
def control_plane(
    *,
    api_server: Sequence[str] = (),
    controller_manager: Sequence[str] | None = None,
    scheduler: bool = False,
    audit_heartbeats: bool = False,
    policy: Mapping[str, Any] | None = None,
) -> Iterator[ControlPlane]:
    """A running control plane. `controller_manager`: its flags; None: there is none. Raises
    AssertionError at its end if a program did not live that long.

    `audit_heartbeats`: renewals of the nodes' Leases are in the audit log as well. `policy`: what
    else than all writes is in it.
    """
    programs = assets()
    assert programs is not None, f"{ASSETS} does not name a folder with {', '.join(PROGRAMS)}"
    folder = Path(tempfile.mkdtemp(prefix="real-"))
    plane = ControlPlane(folder, programs)
    plane.audit_policy = dict(policy or audit_policy(heartbeats=audit_heartbeats))
    try:
        plane.start_etcd()
        plane.start_api_server(*api_server)
        if controller_manager is not None:
            plane.start_controller_manager(*controller_manager)
        if scheduler:
            plane.start_scheduler()
        yield plane
        plane.assert_running()
    finally:
        plane.close()
        shutil.rmtree(folder, ignore_errors=True)


def until(holds: Callable[[], T], what: object = "", seconds: float = 180.0) -> T:
    """What `holds` gives, as soon as that is something. Raises AssertionError where it never is.

    `what`: what is waited for, or a function that says how things are instead.
    """
    deadline = time.monotonic() + seconds
    while not (found := holds()):
        in_time = time.monotonic() < deadline
        assert in_time, f"after {seconds:g} s not so: {what() if callable(what) else what}"
        time.sleep(0.2)
    return found


def free_ports(count: int) -> list[int]:
    """Ports on loopback that nobody uses now."""
    sockets = [socket.socket() for _ in range(count)]
    try:
        for s in sockets:
            s.bind(("127.0.0.1", 0))
        return [s.getsockname()[1] for s in sockets]
    finally:
        for s in sockets:
            s.close()
