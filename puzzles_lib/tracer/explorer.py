"""`Trace.explore`: triton-viz's page of a run, served on this machine for as long as it is looked at.

One small server for each page, in a daemon thread, on a free port of 127.0.0.1. Its address holds a token
that nobody can guess, since all users of a machine can reach its ports; and what asks under another host's
name is refused, so that no web page gets there under a name of its own.
"""

import html
import importlib.util
import json
import os
import secrets
import socketserver
import sys
import threading
from functools import partial
from http.server import BaseHTTPRequestHandler
from typing import Protocol

from puzzles_lib.drawing.card import Theme
from puzzles_lib.tracer.page import Page, Recording, files

MOST_OPEN = 8  # pages at once: the oldest ends when one more is opened
_HEIGHT = 680  # pixels of the frame in a notebook
_LONGEST = 64_000  # bytes of a request's body: the page's own are below 200
_PATIENCE_S = 10  # for a request to arrive
_TYPES = {"js": "text/javascript", "css": "text/css"}

_LOCAL = ("127.0.0.1", "localhost")

# A frame runs the page's own scripts and talks to its own server, to nothing else.
_POLICY = (
    "default-src 'none'; script-src 'self' blob: 'nonce-{}'; worker-src blob:; img-src data: blob:; "
    "connect-src 'self' data: blob:; style-src 'self' 'unsafe-inline'; base-uri 'none'; form-action 'none'"
)


class Shown(Protocol):
    """What is shown where no page is."""

    def _repr_html_(self) -> str: ...


class Explorer:
    """triton-viz's page in a notebook; as text its address, or why there is none.

    ``close()`` ends it; so do the end of the notebook's kernel and the next `explore` of the same kernel,
    puzzle and case.
    """

    def __init__(self, title: str, instead: Shown | None, why: str = "", server: "_Server | None" = None):
        self.title = title
        self.why = why
        self._instead = instead
        self._server = server

    @property
    def url(self) -> str | None:
        """Where the page is, None where there is none or it has ended."""
        return self._server.url if self._server else None

    def close(self) -> None:
        """End the page; again, nothing."""
        server, self._server = self._server, None
        if server:
            self.why = "The page has ended: run the cell again"
            self._instead = None
            server.end()
            for key in [key for key, explorer in _open.items() if explorer is self]:
                del _open[key]

    def __repr__(self) -> str:
        if self._server is None:
            return self.why if self._instead is None else f"{self.why}\n{self._instead!r}"
        return f"triton-viz's page of {self.title}: {self.url}"

    def _repr_html_(self) -> str:
        if self._server is None:
            below = "" if self._instead is None else self._instead._repr_html_()
            return f"<div>{html.escape(self.why)}</div>{below}"
        url, title = html.escape(self._server.url), html.escape(self.title)
        left_out = self._server.page.recording.left_out
        return (
            f'<iframe src="{url}" title="triton-viz: {title}" style="width:100%;height:{_HEIGHT}px;'
            f'border:1px solid {Theme.QUIET};box-sizing:border-box"></iframe>'
            f"<div>{html.escape(left_out)}{'. ' if left_out else ''}"
            f'<a href="{url}" target="_blank" rel="noopener">The same page in a tab of its own</a>. '
            "It ends with <code>.close()</code> or this notebook's kernel; if it stays empty, run the cell "
            f"again{self._server.far}.</div>"
        )


def explore(recording: Recording, instead: Shown) -> Explorer:
    """Serve the page of a recording, or say why not, and show ``instead``."""
    title = recording.title
    if recording.too_large:
        return Explorer(title, instead, f"No page: {recording.too_large}")
    if not _somebody_looks():
        return Explorer(
            title, None, "Run this cell in a notebook: triton-viz's page of this run opens below it"
        )
    base = os.environ.get("JUPYTERHUB_SERVICE_PREFIX")
    if base and importlib.util.find_spec("jupyter_server_proxy") is None:
        why = "No page: on a JupyterHub it takes jupyter-server-proxy, in the environment of Jupyter and here"
        return Explorer(title, instead, why)
    key = (recording.kernel, title)
    for old in [key, *list(_open)[: max(0, len(_open) - MOST_OPEN + 1)]]:
        if old in _open:
            _open[old].close()
    try:
        server = _Server(recording, base)
    except (OSError, RuntimeError) as error:  # no port, no thread
        return Explorer(title, instead, f"No page: {error}")
    _open[key] = Explorer(title, instead, server=server)
    return _open[key]


_open: dict[tuple[str, str], Explorer] = {}


def _somebody_looks() -> bool:
    """Whether a person asked for this.

    Who runs a notebook with nobody there, nbval and nbclient, tells the kernel with each cell that there is
    nobody to answer an ``input()``.
    """
    shell = getattr(sys.modules.get("IPython"), "get_ipython", lambda: None)()
    kernel = getattr(shell, "kernel", None)
    if kernel is None:
        return True
    return bool(kernel.get_parent("shell").get("content", {}).get("allow_stdin", True))


class _Server(socketserver.ThreadingTCPServer):
    """Serves one page until it is ended."""

    daemon_threads = True

    def __init__(self, recording: Recording, base: str | None):
        self.token = secrets.token_urlsafe(24)
        self.page = Page(recording, nonce=secrets.token_urlsafe(16))
        super().__init__(("127.0.0.1", 0), _Handler)
        port = self.server_address[1]
        # A proxy hands on the name under which the browser knows it; there the token alone must do.
        self.hosts = None if base else {name + end for name in _LOCAL for end in ("", f":{port}")}
        place = f"{base.rstrip('/')}/proxy/{port}" if base else f"http://127.0.0.1:{port}"
        self.url = f"{place}/{self.token}/"
        self.far = "" if base else f", or, if Jupyter is on another machine, forward port {port} from there"
        serve = partial(self.serve_forever, poll_interval=0.1)
        threading.Thread(target=serve, name="triton-viz's page", daemon=True).start()

    def end(self) -> None:
        self.shutdown()
        self.server_close()

    def handle_error(self, request: object, client_address: object) -> None:
        """A browser that went away, or sent garbage: no matter of the notebook's."""


class _Handler(BaseHTTPRequestHandler):
    server: _Server
    timeout = _PATIENCE_S

    def do_GET(self) -> None:
        path = self._path()
        if path is None:
            return
        name = path.removeprefix("static/")
        if path == "":
            self._send(200, "text/html", self.server.page.index)
        elif path == "api/data":
            self._send_json(200, self.server.page.data)
        elif path != name and name in files():
            self._send(200, _TYPES[name.rpartition(".")[2]], files()[name])
        else:
            self._refuse(404)

    def do_POST(self) -> None:
        path = self._path()
        if path is None:
            return
        try:
            length = int(self.headers.get("Content-Length", ""))
            if not 0 <= length <= _LONGEST:
                raise ValueError(length)
            asked = json.loads(self.rfile.read(length))
            told = self.server.page.answer(path.removeprefix("api/"), asked)
        except LookupError:
            self._refuse(404)
        except (AttributeError, TypeError, ValueError, ArithmeticError, RecursionError):
            self._refuse(400)
        else:
            self._send_json(200, told)

    def _path(self) -> str | None:
        """What is asked for, below the token; None, and refused, where host or token are not ours."""
        hosts, host = self.server.hosts, self.headers.get("Host", "")
        token, slash, path = self.path.partition("?")[0].removeprefix("/").partition("/")
        if hosts is not None and host not in hosts:
            self._refuse(403)
        elif not slash or not secrets.compare_digest(token.encode(), self.server.token.encode()):
            self._refuse(404)
        else:
            return path
        return None

    def _refuse(self, status: int) -> None:
        self._send_json(status, {"error": "no such thing here"})

    def _send_json(self, status: int, told: object) -> None:
        self._send(status, "application/json", json.dumps(told, allow_nan=False).encode())

    def _send(self, status: int, kind: str, body: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Type", f"{kind}; charset=utf-8")
        self.send_header("Content-Length", str(len(body)))
        self.send_header("Content-Security-Policy", _POLICY.format(self.server.page.nonce))
        self.send_header("Cache-Control", "no-store")
        self.send_header("Referrer-Policy", "no-referrer")
        self.send_header("X-Content-Type-Options", "nosniff")
        self.end_headers()
        self.wfile.write(body)

    def version_string(self) -> str:
        return "triton-bit-by-bit"

    def log_message(self, format: str, *arguments: object) -> None:
        """Nothing: it would stand in the notebook."""


def _let_go() -> None:
    """In a child process: the parent's ports are not its own to keep open."""
    for explorer in _open.values():
        if explorer._server:
            explorer._server.socket.close()
    _open.clear()


os.register_at_fork(after_in_child=_let_go)
