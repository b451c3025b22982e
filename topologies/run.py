"""A Faust app run as the worker of this process: ended by a signal it is a success, dead of an error it says so.

Faust's own `app.main()` is a command line of its own, and logs a traceback where a user wants a sentence.
"""

from __future__ import annotations

import asyncio
import errno
import gc
import logging
import sys
from collections.abc import Callable

import faust

from stream_tpp.errors import StreamTppError

logger = logging.getLogger(__name__)


def run(create: Callable[[], faust.App], on_ready: Callable[[], None] | None = None) -> None:
    """Run the app that `create` makes until SIGTERM or SIGINT ends it; `on_ready` is called once it reads its topics.

    Raises StreamTppError when it can't start or dies. To be called in the main thread, with no event loop running.
    """
    loop = asyncio.new_event_loop()
    # Before the app is made: Faust's services take the current loop for theirs.
    asyncio.set_event_loop(loop)
    worker = _Worker(create(), loop=loop, stdout=sys.stderr, override_logging=False, redirect_stdouts=False)
    worker.on_ready = on_ready
    try:
        worker.run()
    except StreamTppError:
        raise
    except OSError as error:
        if error.errno != errno.EADDRINUSE:
            raise _died(error) from error
        raise StreamTppError(
            f"The worker's web address is in use ({error.strerror}): set another port ([web] port, STREAM_TPP_WEB_PORT)."
        ) from error
    except Exception as error:
        raise _died(error) from error
    finally:
        asyncio.set_event_loop(None)


def _died(error: Exception) -> StreamTppError:
    logger.error("The worker died.", exc_info=error)
    return StreamTppError(f"The worker died of an error nobody foresaw, {error!r}: its log tells where.")


class _Worker(faust.Worker):
    """Faust's worker without its spinner, and with its errors raised."""

    on_ready: Callable[[], None] | None = None

    def run(self) -> None:
        self.spinner = None
        self._starting_fut = self.loop.create_task(self.start())
        try:
            self.loop.run_until_complete(self._starting_fut)
        except asyncio.CancelledError:
            logger.info("Stopped by a signal.")
        finally:
            # Raises what the app crashed of, if it did.
            self.stop_and_shutdown()

    async def on_startup_finished(self) -> None:
        await super().on_startup_finished()
        # A full collection would go through all that was imported (with torch 300,000 objects, 0.13 s) while events wait.
        gc.collect()
        gc.freeze()
        if self.on_ready is not None and not self._shutdown_immediately:
            self.on_ready()
