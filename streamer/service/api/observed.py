"""Reports of the service about itself, for the operator."""

from __future__ import annotations

from typing import final

from streamer.service.api.calls import Answer, Call, answer
from streamer.service.api.status import Status


@final
class Observed:
    """Handlers of these reports."""

    def __init__(self, status: Status) -> None:
        self._status = status

    def show_token(self, call: Call) -> Answer:
        """See the route."""
        token = call.token
        return answer({"id": token.id, "name": token.name, "tenant": token.tenant, "scopes": token.scopes})

    def status(self, _: Call) -> Answer:
        """See the route."""
        return answer(self._status.status())

    def metrics_history(self, call: Call) -> Answer:
        """See the route."""
        query = call.query
        names = [name for name in query.get("name", "").split(",") if name]
        return answer(self._status.history(names, query.get("minutes", 60) * 60.0, query.get("points", 120)))

    def filters(self, call: Call) -> Answer:
        """See the route."""
        return answer(self._status.filters(call.query.get("limit", 20), call.query.get("samples", 60)))

    def get_config(self, _: Call) -> Answer:
        """See the route."""
        return answer(self._status.configured())

    def check_config(self, call: Call) -> Answer:
        """See the route."""
        return answer(self._status.check_config(call.body))
