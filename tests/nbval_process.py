"""Run by tests/notebook_run.py in a process of its own: pytest with nbval, its kernel over sockets.

    python -m tests.nbval_process SOCKETS ARGUMENT_OF_PYTEST...

SOCKETS is how the paths of the kernel's sockets begin (`puzzles_lib.authoring.sockets`). As a command it
starts a new kernel; forked by `tests.warm`, it forks its kernel, too.
"""

import functools
import queue
import subprocess
import sys
import time
from typing import Any

sys.modules["rfc3987_syntax"] = None  # an optional part of jsonschema that takes three seconds to import

import pytest  # noqa: E402
from jupyter_client import KernelManager  # noqa: E402
from jupyter_client.launcher import launch_kernel  # noqa: E402
from jupyter_client.provisioning import local_provisioner  # noqa: E402

from tests.warm import LAUNCHER, WarmKernel  # noqa: E402

OUTPUT_TIMEOUT_S = 60  # nbval's own 5 s for an output to arrive are few on a busy machine


class Patience:
    """A plugin. nbval has been imported when its hooks are called, not before: pytest warns where it was."""

    def __init__(self, prefix: str, warm: WarmKernel | None = None):
        self.prefix = prefix
        self.warm = warm

    def pytest_configure(self) -> None:
        from nbval import kernel, plugin

        class Kernel(kernel.RunningKernel):
            def __init__(self, *args: object, **options: object):
                try:
                    super().__init__(*args, **options)
                except Exception as error:
                    pytest.fail(f"no kernel to run it: {error}", pytrace=False)

            def get_message(self, stream: str, timeout: float = OUTPUT_TIMEOUT_S) -> dict:
                """As nbval's, but a kernel that died is noticed at once, not when the time is up."""
                end = time.monotonic() + timeout
                while True:
                    try:
                        return super().get_message(stream, min(timeout, 1))
                    except queue.Empty:
                        if not self.is_alive():
                            self.stop()
                            raise RuntimeError("the kernel died") from None
                        if time.monotonic() > end:
                            raise

        kernel.pformat = lambda message: message  # it lays out every message for a log that nobody reads
        kernel.KernelManager = functools.partial(KernelManager, transport="ipc", ip=self.prefix)
        plugin.RunningKernel = Kernel
        local_provisioner.launch_kernel = self.launch

    def launch(self, command: list[str], **options: Any) -> WarmKernel | subprocess.Popen:
        """The warm kernel; a new process where there is none, or where it would be another one's kernel."""
        warm, self.warm = self.warm, None
        if warm is None or command[: len(LAUNCHER)] != LAUNCHER:
            return launch_kernel(command, **options)
        warm.start(command, options["cwd"], options["env"])
        return warm

    def pytest_itemcollected(self, item: pytest.Item) -> None:
        item.output_timeout = OUTPUT_TIMEOUT_S


def forked(prefix: str, arguments: list[str]) -> int:
    """Called in a process that `tests.warm` has forked."""
    warm = WarmKernel()
    return int(pytest.main(arguments, plugins=[Patience(prefix, warm)]))


if __name__ == "__main__":
    sys.exit(pytest.main(sys.argv[2:], plugins=[Patience(sys.argv[1])]))
