"""A real Ray cluster on this machine: a head and its worker nodes, each with its own processes."""

import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

REPOSITORY = Path(__file__).parents[1]
SECONDS_TO_START = 120.0
# A lost node is noticed within seconds, not within half a minute.
ENVIRONMENT = {
    "RAY_AUTH_MODE": "disabled",
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_health_check_initial_delay_ms": "1000",
    "RAY_health_check_period_ms": "500",
    "RAY_health_check_timeout_ms": "5000",
    "RAY_health_check_failure_threshold": "3",
}


class RayCluster:
    """The running nodes. The head offers no CPU, so all the work lies on the workers.

    Parameters
    ----------
    workers : int
        Worker nodes to start with.
    cpus : int
        CPUs that each worker offers.
    python : str
        What the nodes run on.
    path : Path or None
        What they import beside what is installed there.
    """

    def __init__(
        self,
        workers: int = 2,
        cpus: int = 1,
        *,
        python: str = sys.executable,
        path: Path | None = REPOSITORY,
    ) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="mlr-", dir="/tmp"))
        self.cpus = cpus
        self.python = python
        self.environment = ENVIRONMENT | {"PYTHONPATH": "" if path is None else str(path)}
        self.workers: list[subprocess.Popen[bytes] | None] = []
        self.nodes: list[subprocess.Popen[bytes]] = []
        try:
            client = free_port()
            self._start("h", "--head", "--port=0", f"--ray-client-server-port={client}")
            self.address = self._wait_for_head()
            self.client_address = f"ray://127.0.0.1:{client}"
            for _ in range(workers):
                self.add_worker()
            self.wait_for_workers()
        except BaseException:
            self.stop()
            raise

    def add_worker(self) -> int:
        """Start one more worker node, which joins in its own time; give its number."""
        number = len(self.workers)
        options = (f"--address={self.address}", f"--num-cpus={self.cpus}")
        self.workers.append(self._start(f"w{number}", *options))
        return number

    def wait_for_workers(self) -> None:
        """Return when each worker that was started has joined."""
        end = time.monotonic() + SECONDS_TO_START
        waiting = [n for n, node in enumerate(self.workers) if node is not None]
        while waiting and time.monotonic() < end:
            time.sleep(0.1)
            waiting = [n for n in waiting if "runtime started" not in self._log_of(n)]
        if waiting:
            raise RuntimeError(f"Workers {waiting} did not start:\n{self.log()}")

    def kill_worker(self, number: int) -> None:
        """End a worker node as a power cut would: all of its processes at once."""
        node = self.workers[number]
        assert node is not None, f"worker {number} was killed before"
        self.workers[number] = None
        kill_session(node)

    def stop(self) -> None:
        """End all nodes and remove their files."""
        for node in reversed(self.nodes):
            kill_session(node)
        shutil.rmtree(self.folder, ignore_errors=True)

    def log(self) -> str:
        """What the nodes printed, for the message of a failed start."""
        return "\n".join(path.read_text() for path in sorted(self.folder.glob("*.log")))

    def _log_of(self, number: int) -> str:
        """What one worker printed."""
        return (self.folder / f"w{number}.log").read_text()

    def _start(self, name: str, *options: str) -> subprocess.Popen[bytes]:
        """Start ``ray start --block`` in a process group of its own."""
        if "--head" in options:
            options += (
                "--num-cpus=0",
                "--include-dashboard=false",
                "--disable-usage-stats",
            )
        command = [
            *(self.python, "-m", "ray.scripts.scripts", "start", "--block", *options),
            *("--node-ip-address=127.0.0.1", "--object-store-memory=100000000"),
            *("--min-worker-port=0", "--max-worker-port=0"),
            *(f"--temp-dir={self.folder / name}", "--include-log-monitor=false"),
        ]
        with (self.folder / f"{name}.log").open("wb") as log:
            node = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                env=os.environ | self.environment,
                start_new_session=True,
            )
        self.nodes.append(node)
        return node

    def _wait_for_head(self) -> str:
        """Give the address of the head as soon as it answers."""
        written = self.folder / "h" / "ray_current_cluster"
        end = time.monotonic() + SECONDS_TO_START
        while time.monotonic() < end and self.nodes[0].poll() is None:
            if written.is_file() and (address := written.read_text().strip()):
                host, port = address.rsplit(":", 1)
                with suppress(OSError):
                    socket.create_connection((host, int(port)), 1).close()
                    return address
            time.sleep(0.1)
        raise RuntimeError(f"The head did not start:\n{self.log()}")


def free_port() -> int:
    """A port that nobody listens on at the moment."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def kill_session(process: subprocess.Popen[bytes]) -> None:
    """Kill a process that leads a session and all that belong to it, and wait until it is gone.

    Ray's workers have process groups of their own, but stay in the session.
    """
    for _ in range(2):  # what was started while the first round went on
        listed = subprocess.run(["ps", "-A", "-o", "pid="], capture_output=True, text=True)
        for number in map(int, listed.stdout.split()):
            with suppress(ProcessLookupError, PermissionError):
                if os.getsid(number) == process.pid:
                    os.kill(number, signal.SIGKILL)
    process.wait()


@contextmanager
def ray_cluster(workers: int = 2, cpus: int = 1, **options: Any) -> Iterator[RayCluster]:
    """A cluster for the length of a block."""
    cluster = RayCluster(workers, cpus, **options)
    try:
        yield cluster
    finally:
        cluster.stop()
