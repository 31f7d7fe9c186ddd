"""Reports of the service about itself, for the operator."""

from __future__ import annotations

from typing import Any, final

from streamer.service.api.calls import Answer, Call, answer
from streamer.service.api.status import Status
from streamer.service.api.tokens import Token


@final
class Observed:
    """Handlers of these reports."""

    def __init__(self, status: Status) -> None:
        self._status = status

    def show_token(self, call: Call) -> Answer:
        """See the route."""
        return answer(shown_token(call.token))

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


def shown_token(token: Token) -> dict[str, Any]:
    """Return a token as JSON members, without its secret."""
    rights = {"tenant": token.tenant, "scopes": token.scopes}
    return {"id": token.id, "name": token.name, **rights, "created": token.created or None, "expires": token.expires or None}
