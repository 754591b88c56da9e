"""Follows runs in progress: the report's page, served on this machine, draws itself again as numbers arrive."""

from __future__ import annotations

from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from inbounds.errors import ConfigurationError, InboundsError
from inbounds.report.page import embedded, render_page
from inbounds.storage.files import encoded
from inbounds.system_errors import explained


def make_server(collect: Callable[[], dict[str, Any]], port: int = 0) -> ThreadingHTTPServer:
    """Return a server on the loopback address: `/` is the page, `/data.json` what `collect` finds now."""

    class Handler(BaseHTTPRequestHandler):
        """Answers two addresses and refuses everything else."""

        def do_GET(self) -> None:
            """Answer one request; a run that is just being written gives a moment's pause, not an end."""
            try:
                if self.path == "/":
                    self._answer(200, "text/html; charset=utf-8", render_page(collect(), live=True))
                elif self.path == "/data.json":
                    self._answer(200, "application/json", embedded(collect()))
                else:
                    self._answer(404, "text/plain", "not here")
            except InboundsError as error:
                self._answer(503, "text/plain", str(error))
            except ConnectionError:
                pass  # the browser has gone
            except OSError as error:
                self._answer(503, "text/plain", explained(error))

        def _answer(self, status: int, kind: str, text: str) -> None:
            body = encoded(text)
            self.send_response(status)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(body)))
            self.send_header("Cache-Control", "no-store")
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: Any) -> None:
            """Stay quiet: the terminal belongs to the user."""

    try:
        return ThreadingHTTPServer(("127.0.0.1", port), Handler)
    except (OSError, OverflowError) as error:
        why = (error.strerror or error) if isinstance(error, OSError) else "ports go from 0 to 65535"
        raise ConfigurationError(
            f"the page cannot be served at port {port} ({why}). Choose another --port; 0 takes any that is free."
        ) from error
