"""The pages, in the order of the navigation. A page is a module here and a template, and stands in `VIEWS`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from streamer.service.console.pages.overview import OVERVIEW
from streamer.service.console.visit import View

VIEWS: Final[tuple[View, ...]] = (OVERVIEW,)
BY_PATH: Final[Mapping[str, View]] = {view.path: view for view in VIEWS}
