"""A TCP proxy between a worker and its broker, that can be cut and mended."""

from __future__ import annotations

import asyncio
import contextlib
from types import TracebackType


class Proxy:
    """Passes what comes to `port` on to `target`, and back, while it is not cut.

    Cut, it holds what arrives and sends nothing: no connection is refused or reset, as where a cable is pulled.
    """

    def __init__(self, port: int, target: int) -> None:
        self.port = port
        self.target = target
        self._open = asyncio.Event()
        self._open.set()
        self._pipes: set[asyncio.Task[None]] = set()

    def cut(self) -> None:
        self._open.clear()

    def mend(self) -> None:
        self._open.set()

    async def __aenter__(self) -> Proxy:
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", self.port)
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._server.close()
        for pipe in self._pipes:
            pipe.cancel()
        await asyncio.gather(*self._pipes, return_exceptions=True)

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        back_reader, back_writer = await asyncio.open_connection("127.0.0.1", self.target)
        for source, sink in ((reader, back_writer), (back_reader, writer)):
            pipe = asyncio.create_task(self._pass(source, sink))
            self._pipes.add(pipe)
            pipe.add_done_callback(self._pipes.discard)

    async def _pass(self, source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
        try:
            with contextlib.suppress(OSError):
                while chunk := await source.read(65536):
                    await self._open.wait()
                    sink.write(chunk)
                    await sink.drain()
        finally:
            sink.close()
