"""The simulate topology: events in; forecasts with their simulated futures, and dead letters, out. No warnings."""

from __future__ import annotations

import faust

from stream_tpp.operators.forecaster import Forecaster
from stream_tpp.topologies.early_warning import assemble
from stream_tpp.topologies.plug import Plugged
from stream_tpp.topologies.settings import Settings
from stream_tpp.topologies.web import serve_as_set


def create_app(settings: Settings) -> faust.App:
    """The Faust app of this topology. Raises StreamTppError where there is no such model."""
    app, plugged = create(settings)
    serve_as_set(app, plugged, settings.web)
    return app


def create(settings: Settings, forecaster: Forecaster | None = None) -> tuple[faust.App, Plugged]:
    """The app, and what it is made of. All futures go on the record, unless the settings name a number of them."""
    published = settings.forecasts.futures or settings.forecasts.paths
    return assemble(settings, (), published, forecaster)
