"""`ctx1 serve` and `ctx1 proxy` as processes: forks, unless a test names the installed `ctx1`."""

import json
import os
import signal
import subprocess
from contextlib import contextmanager

import httpx

from tests.support.ctx1_process import ONE_THREAD, PATIENCE
from tests.support.forked_ctx1 import forked_ctx1


class RunningServer:
    """A server's process, and a client for it."""

    def __init__(self, process, url, token):
        self.process, self.url = process, url
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        self.client = httpx.Client(base_url=url, timeout=PATIENCE, headers=headers)

    def ask(self, question, **fields):
        """`POST /v1/retrieve`."""
        return self.client.post("/v1/retrieve", json={"question": question, **fields})

    def end(self, sign=signal.SIGTERM):
        """End the process with a signal. Return its exit code and its log."""
        self.process.send_signal(sign)
        _, stderr = self.process.communicate(timeout=PATIENCE)
        return self.process.returncode, [json.loads(line) for line in stderr.splitlines() if line.startswith("{")]


@contextmanager
def serving(*arguments, cwd, token="", command="serve", ctx1=None, **env):
    """Start a server on a free port and wait until it listens."""
    command = [ctx1 or forked_ctx1(), command, "--json", "--port", "0", *map(str, arguments)]
    if token:
        command += ["--token-env", "CTX1_TEST_TOKEN"]
    process = subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=cwd,
        env={**os.environ, **ONE_THREAD, "CTX1_TEST_TOKEN": token, **env},
    )
    try:
        line = process.stdout.readline()
        assert line, process.stderr.read()
        server = RunningServer(process, json.loads(line)["url"], token)
        with server.client:
            yield server
    finally:
        if process.poll() is None:
            process.terminate()
            process.communicate(timeout=PATIENCE)
