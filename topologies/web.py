"""The worker's HTTP server: /livez, /readyz, /metrics, and whatever routes an app adds."""

from __future__ import annotations

import errno
from collections.abc import Iterable

import faust
from aiohttp import web
from mode import Service

from stream_tpp.errors import StreamTppError
from stream_tpp.topologies import metrics
from stream_tpp.topologies.boot import start_first
from stream_tpp.topologies.health import Health, Sign
from stream_tpp.topologies.plug import Plugged
from stream_tpp.topologies.settings import Web


class WebServer(Service):
    """Serves a worker's health on `host` and `port` (0: a free one, see `address`) from before it reads to after it stops.

    /livez and /readyz answer 200 or 503 with what was looked at as JSON; /metrics is for Prometheus. Raises StreamTppError
    when the port is in use.
    """

    def __init__(self, health: Health, host: str = "127.0.0.1", port: int = 0, routes: Iterable[web.RouteDef] = ()) -> None:
        super().__init__()
        self.health = health
        self.host = host
        self.port = port
        application = web.Application()
        application.add_routes([web.get("/livez", self._live), web.get("/readyz", self._ready), *routes])
        application.add_routes([web.get("/metrics", self._metrics)])
        self._runner = web.AppRunner(application, access_log=None)

    @property
    def address(self) -> str:
        """Where it is served, once it is."""
        host, port = self._runner.addresses[0][:2]
        return f"http://{f'[{host}]' if ':' in host else host}:{port}"

    async def on_start(self) -> None:
        await self._runner.setup()
        try:
            await web.TCPSite(self._runner, self.host, self.port).start()
        except OSError as error:
            await self._runner.cleanup()
            if error.errno == errno.EADDRINUSE:
                raise StreamTppError(
                    f"The port {self.port} of {self.host} is in use: set port under [web] in the settings "
                    "(STREAM_TPP_WEB_PORT) to another, 0 for a free one."
                ) from error
            raise StreamTppError(f"Nothing can be served on {self.host}:{self.port}: {error.strerror or error}.") from error

    async def on_stop(self) -> None:
        await self._runner.cleanup()

    async def _live(self, request: web.Request) -> web.Response:
        return _answer(await self.health.live())

    async def _ready(self, request: web.Request) -> web.Response:
        return _answer(await self.health.ready())

    async def _metrics(self, request: web.Request) -> web.Response:
        text = metrics.render(await metrics.metrics(self.health))
        return web.Response(body=text.encode(), headers={"Content-Type": metrics.CONTENT_TYPE})


def serve(app: faust.App, health: Health, host: str, port: int, routes: Iterable[web.RouteDef] = ()) -> WebServer:
    """Have `app` serve `health` whenever it runs. Call it before the app starts."""
    server = WebServer(health, host, port, routes)
    start_first(app, server)
    return server


def serve_as_set(app: faust.App, plugged: Plugged, settings: Web) -> None:
    """Serve the health of a plugged app where the settings say, if they do."""
    if settings.enabled:
        serve(app, Health(app, plugged), settings.host, settings.port)


def _answer(signs: list[Sign]) -> web.Response:
    looked_at = {sign.name: {"ok": sign.well, "detail": sign.detail} for sign in signs}
    well = all(sign.well for sign in signs)
    return web.json_response({"ok": well, "checks": looked_at}, status=200 if well else 503)
