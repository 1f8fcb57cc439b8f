"""Serve triton-viz's page of a run on this computer while someone looks at it: `Trace.explore`.

Each page has a small server in a daemon thread, on a free port of 127.0.0.1. Its address contains a secret
token, because all users of a computer can reach its ports. Requests for another host name are refused, so
that no web page can reach the server under its own name.
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
from puzzles_lib.tracer.page import Page, Recording, files, missing

MOST_OPEN = 8  # the most pages at once: the oldest ends when another is opened
_HEIGHT = 680  # the height of the frame in a notebook, in pixels
_LONGEST = 64_000  # the most bytes of a request's body: the page's own have fewer than 200
_PATIENCE_S = 10  # for a request to arrive
_TYPES = {"js": "text/javascript", "css": "text/css"}

_LOCAL = ("127.0.0.1", "localhost")

# A frame runs the page's own scripts and talks to its own server, to nothing else.
_POLICY = (
    "default-src 'none'; script-src 'self' blob: 'nonce-{}'; worker-src blob:; img-src data: blob:; "
    "connect-src 'self' data: blob:; style-src 'self' 'unsafe-inline'; base-uri 'none'; form-action 'none'"
)


class Shown(Protocol):
    """What is shown if there is no page."""

    def _repr_html_(self) -> str: ...


class Explorer:
    """triton-viz's page in a notebook. As text, its address, or why there is none.

    ``close()`` ends it, and so does the end of the notebook's kernel, or the next `explore` of the same
    kernel, puzzle and case.
    """

    def __init__(self, title: str, instead: Shown | None, why: str = "", server: "_Server | None" = None):
        self.title = title
        self.why = why
        self._instead = instead
        self._server = server

    @property
    def url(self) -> str | None:
        """The address of the page; None if there is none or it has ended."""
        return self._server.url if self._server else None

    def close(self) -> None:
        """Close the page. Calling it again does nothing."""
        server, self._server = self._server, None
        if server:
            self.why = "The page has been closed: run the cell again"
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
            f'<a href="{url}" target="_blank" rel="noopener">Open this page in a new tab</a>. '
            "It closes when you call <code>.close()</code> or stop the kernel. If it is empty, run the cell "
            f"again{self._server.far}.</div>"
        )


def explore(recording: Recording, instead: Shown) -> Explorer:
    """Serve the page of a recording. If that isn't possible, show ``instead`` and say why."""
    title = recording.title
    if recording.too_large:
        return Explorer(title, instead, f"No page: {recording.too_large}")
    if why := missing():
        return Explorer(title, instead, f"No page: {why}")
    if not _somebody_looks():
        return Explorer(title, None, "Run this cell in a notebook to see triton-viz's page of this run")
    base = os.environ.get("JUPYTERHUB_SERVICE_PREFIX")
    if base and importlib.util.find_spec("jupyter_server_proxy") is None:
        why = (
            "No page: on a JupyterHub, install jupyter-server-proxy in Jupyter's environment and in this one"
        )
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
    """Return whether a person is looking at the notebook.

    Programs that run a notebook, such as nbval and nbclient, tell the kernel with each cell that no one can
    answer an ``input()``.
    """
    shell = getattr(sys.modules.get("IPython"), "get_ipython", lambda: None)()
    kernel = getattr(shell, "kernel", None)
    if kernel is None:
        return True
    return bool(kernel.get_parent("shell").get("content", {}).get("allow_stdin", True))


class _Server(socketserver.ThreadingTCPServer):
    """Serves one page until it is closed."""

    daemon_threads = True

    def __init__(self, recording: Recording, base: str | None):
        self.token = secrets.token_urlsafe(24)
        self.page = Page(recording, nonce=secrets.token_urlsafe(16))
        super().__init__(("127.0.0.1", 0), _Handler)
        port = self.server_address[1]
        # A proxy passes on the name that the browser knows, so there only the token protects the page.
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
        """Ignore a browser that went away or sent garbage."""


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
        """Return the requested path after the token; refuse the request and return None if it is not ours."""
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
        """Log nothing, because it would appear in the notebook."""


def _let_go() -> None:
    """Close the parent's ports in a child process."""
    for explorer in _open.values():
        if explorer._server:
            explorer._server.socket.close()
    _open.clear()


os.register_at_fork(after_in_child=_let_go)
