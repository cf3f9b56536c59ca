"""A web server of this process that serves files, badly where a test wants that."""

import gzip
import hashlib
import re
import socket
import struct
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import urlsplit

CHUNK = 2**13
LINGER_NOT = struct.pack("ii", 1, 0)


@dataclass(kw_only=True)
class Trouble:
    """One answer that is not as it should be.

    Attributes
    ----------
    status : int
        Code in place of that of a good answer, without a body.
    location : str
        Address to redirect to.
    after : int
        Bytes of the body that are sent before something happens.
    how : {"reset", "close", "stall"}
        What happens: the connection breaks, it ends as if all were sent, or nothing more comes
        until the server is told to ``go_on``.
    """

    status: int = 0
    location: str = ""
    after: int = 0
    how: str = "reset"


@dataclass(kw_only=True)
class Page:
    """What is served under one path: first the troubles, one a request, then the content.

    Attributes
    ----------
    content : bytes
        The file.
    ranges : bool
        Whether a part of it may be asked for.
    check_version : bool
        Whether ``If-Range`` is heeded.
    skewed : bool
        Whether another part is sent than the one that was asked for, and said to be.
    validator : {"etag", "weak", "date", ""}
        How the answer tells the version.
    sized : bool
        Whether the answer tells its length.
    kind : str
        Type of the content.
    packed : bool
        Whether the content is sent packed by gzip, though nobody asked for that.
    troubles : list of Trouble
        Answers to the first requests; the last one is given again and again if ``for_ever``.
    """

    content: bytes
    ranges: bool = True
    check_version: bool = True
    skewed: bool = False
    validator: str = "etag"
    sized: bool = True
    kind: str = "application/octet-stream"
    packed: bool = False
    troubles: list[Trouble] = field(default_factory=list)
    for_ever: bool = False

    def next_trouble(self) -> Trouble:
        if not self.troubles:
            return Trouble(after=sys.maxsize)
        return self.troubles[0] if self.for_ever else self.troubles.pop(0)

    def version(self) -> dict[str, str]:
        """Header that tells the version."""
        tag = f'"{hashlib.md5(self.content).hexdigest()}"'
        day = 1 + self.content[0] % 28 if self.content else 1
        return {
            "etag": {"ETag": tag},
            "weak": {"ETag": f"W/{tag}"},
            "date": {"Last-Modified": f"Mon, {day:02} Jan 2024 00:00:00 GMT"},
            "": {},
        }[self.validator]


@dataclass(kw_only=True)
class Asked:
    """One request, and what was sent for it."""

    path: str
    start: int
    host: str
    agent: str
    status: int = 0
    sent: int = 0


@dataclass(kw_only=True)
class Site:
    """Pages, and what was asked for."""

    url: str
    pages: dict[str, Page] = field(default_factory=dict)
    log: list[Asked] = field(default_factory=list)
    go_on: threading.Event = field(default_factory=threading.Event)

    def put(self, path: str, content: bytes, **settings: Any) -> str:
        """Serve a page, and return its address."""
        troubles = list(settings.pop("troubles", ()))
        self.pages[path] = Page(content=content, troubles=troubles, **settings)
        return self.url + path

    @property
    def sent(self) -> int:
        """Bytes of bodies that were sent."""
        return sum(asked.sent for asked in self.log)

    @property
    def starts(self) -> list[int]:
        """First byte that each request asked for."""
        return [asked.start for asked in self.log]


class _Handler(BaseHTTPRequestHandler):
    site: Site
    protocol_version = "HTTP/1.1"

    def log_message(self, *args: object) -> None:
        pass

    def do_GET(self) -> None:
        self.close_connection = True
        # A proxy is asked for the whole address.
        path = urlsplit(self.path).path.removeprefix("/")
        wanted = re.fullmatch(r"bytes=(\d+)-", self.headers.get("Range", "")) or ["", "0"]
        asked = Asked(
            path=path,
            start=int(wanted[1]),
            host=urlsplit(self.path).netloc,
            agent=self.headers.get("User-Agent", ""),
        )
        self.site.log.append(asked)
        page = self.site.pages.get(path)
        if page is None:
            self._head(asked, 404, {"Content-Length": "0"})
            return
        trouble = page.next_trouble()
        if trouble.location:
            self._head(asked, 302, {"Location": trouble.location, "Content-Length": "0"})
        elif trouble.status:
            self._head(asked, trouble.status, {"Content-Length": "0"})
        else:
            self._serve(asked, page, trouble)

    def _serve(self, asked: Asked, page: Page, trouble: Trouble) -> None:
        content = gzip.compress(page.content) if page.packed else page.content
        start, size = asked.start, len(content)
        same = self.headers.get("If-Range") in (None, *page.version().values())
        if not page.ranges or not (same or not page.check_version):
            start = 0
        if start and page.skewed:
            start -= 10
        if start >= size > 0:
            self._head(asked, 416, {"Content-Range": f"bytes */{size}", "Content-Length": "0"})
            return
        fields = page.version() | {"Content-Type": page.kind}
        if page.sized:
            fields["Content-Length"] = str(size - start)
        if start:
            fields["Content-Range"] = f"bytes {start}-{size - 1}/{size}"
        if page.packed:
            fields["Content-Encoding"] = "gzip"
        self._head(asked, 206 if start else 200, fields)
        self._send(asked, content[start:], trouble)

    def _send(self, asked: Asked, body: bytes, trouble: Trouble) -> None:
        first = body[: trouble.after]
        if not self._write(asked, first) or len(first) < trouble.after:
            return
        if trouble.how == "stall":
            self.site.go_on.wait(30)
            self._write(asked, body[trouble.after :])
        else:
            self._hang_up(gently=trouble.how == "close")

    def _write(self, asked: Asked, content: bytes) -> bool:
        """Write, and tell whether anybody still reads."""
        for at in range(0, len(content), CHUNK):
            chunk = content[at : at + CHUNK]
            try:
                self.wfile.write(chunk)
            except OSError:
                return False
            asked.sent += len(chunk)
        return True

    def _hang_up(self, *, gently: bool) -> None:
        self.wfile.flush()
        if not gently:
            # Closed at once, it resets the connection.
            self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, LINGER_NOT)

    def _head(self, asked: Asked, status: int, fields: dict[str, str]) -> None:
        asked.status = status
        self.send_response(status)
        for name, value in (fields | {"Connection": "close"}).items():
            self.send_header(name, value)
        self.end_headers()


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def shutdown_request(self, request: Any) -> None:
        """Close a connection; one that is to break must not end in an orderly way before."""
        lingers = request.getsockopt(socket.SOL_SOCKET, socket.SO_LINGER, len(LINGER_NOT))
        if lingers == LINGER_NOT:
            self.close_request(request)
        else:
            super().shutdown_request(request)

    def handle_error(self, request: object, client_address: object) -> None:
        """Say nothing of clients that have gone, which tests want."""


@contextmanager
def serving() -> Iterator[Site]:
    """Run a server on a free port of this machine."""
    handler = type("Handler", (_Handler,), {})
    with _Server(("127.0.0.1", 0), handler) as server:
        site = handler.site = Site(url=f"http://127.0.0.1:{server.server_port}/")
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield site
        finally:
            site.go_on.set()
            server.shutdown()
            thread.join()
