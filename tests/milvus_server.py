"""The server of the wheel `milvus`, on the loopback of a network that ends with the processes in it.

    python tests/milvus_server.py COMMAND…

runs a command beside such a server, which answers it at `milvus:http://127.0.0.1:19530` and nobody else.
"""

import os
import shutil
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

ADDRESS = "milvus:http://127.0.0.1:19530"
SERVED = "DMUH_TEST_MILVUS_SERVER" in os.environ  # this is the run of tests beside a server
CANNOT = 77  # exit code of that run where the server does not start


def why_none() -> str | None:
    """Return why no server can be started here, None if nothing is known to be in the way."""
    try:
        import milvus  # noqa: F401
    except ModuleNotFoundError:
        return "the server is not installed: pip install milvus==2.3.5"
    gone = next((name for name in ("unshare", "ip") if shutil.which(name) is None), None)
    if gone:
        return f"{gone} is not installed"
    tried = subprocess.run(in_own_network("true"), capture_output=True, text=True)
    return None if tried.returncode == 0 else f"this machine allows no networks of one's own: {tried.stderr.strip()}"


def in_own_network(*command: object) -> list[str]:
    """Return a command that runs another with a loopback and process numbers of its own; all of them end with it."""
    own = ["unshare", "--map-root-user", "--net", "--pid", "--fork", "--kill-child", "--mount-proc"]
    return [*own, "sh", "-c", 'ip link set lo up && exec "$@"', "sh", *map(str, command)]


class Server:
    """A server with its data in a folder, for the time of a with block; it can be killed and started again."""

    def __init__(self, folder: Path) -> None:
        from milvus import MilvusServer

        self._made = MilvusServer(data_dir=str(folder))

    def __enter__(self) -> "Server":
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def start(self) -> None:
        """Start the server and wait until it says that it is well."""
        self._made.start()

    def stop(self) -> None:
        """End the server."""
        self._made.stop()

    def kill(self) -> None:
        """End the server as kill -9 does."""
        self.signal(signal.SIGKILL)
        self.stop()

    def signal(self, number: signal.Signals) -> None:
        """Send the server a signal."""
        self._made.server_proc.send_signal(number)


if __name__ == "__main__":
    inside = "DMUH_OWN_NETWORK"
    if inside not in os.environ:
        reason = why_none()
        if reason:
            sys.exit(reason)
        os.environ[inside] = "1"
        os.execvp("unshare", in_own_network(sys.executable, __file__, *sys.argv[1:]))
    with tempfile.TemporaryDirectory() as data, Server(Path(data)):
        sys.exit(subprocess.run(sys.argv[1:]).returncode)
