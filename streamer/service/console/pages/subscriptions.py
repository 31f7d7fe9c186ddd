"""Subscriptions: search them by their content, page by page; show, edit and try one of them."""

from __future__ import annotations

from collections.abc import Mapping
from difflib import unified_diff
from typing import Any, Final

from streamer.service.console import drafts
from streamer.service.console.client import Refused, part
from streamer.service.console.drafts import Draft, neat, read
from streamer.service.console.text import address, plain
from streamer.service.console.visit import Sent, Shown, View, Visit

_PAGE: Final = 50
#: The latest kept events that a subscription matched.
_LAST: Final = 10
#: The parameters of the search; empty ones are omitted.
_FIELDS: Final = ("prefix", "collection", "gateway", "label", "text")
_NEW: Final = """\
{
  "collection": "orders",
  "filters": [{"field": "amount", "op": ">", "value": 100}]
}"""
#: Actions that change only the form or the text.
_SHAPES: Final = ("add", "take_form", "take_text")


async def show_list(visit: Visit) -> Shown:
    """Show a page of the list."""
    search = {name: visit.query.get(name, "").strip() for name in _FIELDS}
    params = {name: value or None for name, value in search.items()}
    try:
        page = await visit.api.get("/v1/subscriptions", limit=_PAGE, cursor=visit.query.get("cursor"), **params)
    except Refused as refused:
        if refused.kind != "bad-request":
            raise
        return Shown("subscriptions.html", {"search": search, "found": None, "wrong": refused.detail}, 422)
    return Shown("subscriptions.html", {"search": search, "found": page, "wrong": ""})


async def show_one(visit: Visit) -> Shown:
    """Show one subscription; without an id an empty form."""
    if not (name := visit.query.get("id", "")):
        return _form("", drafts.shown(_NEW))
    if (row := await _stored(visit, name)) is None:
        raise Refused(404, {"title": "Unknown subscription", "detail": "It was deleted, or never existed."})
    draft = drafts.shown(neat(row["subscription"]))
    last = None
    if visit.who.may("consume"):
        last = (await visit.api.get("/v1/events", subscription=name, limit=_LAST))["items"]
    plan, counted = await _plan(visit, name), await _counted(visit, name)
    return _form(name, draft, row, plan=plan, counted=counted, past=await _past(visit, name), last=last)


async def act(visit: Visit) -> Shown | Sent:
    """Try, save, pause, resume or delete a subscription."""
    do, name = visit.form.get("do", ""), visit.form.get("id", "").strip()
    path, tag = f"/v1/subscriptions/{part(name)}", visit.form.get("etag", "")
    if do in ("pause", "resume", "delete"):
        draft = Draft("")
    else:
        draft = drafts.of_form(visit.form)
        if do == "try" or do in _SHAPES or do.startswith("remove."):
            return await _tried(visit, name, draft, tag)
        if not name:
            draft = drafts.with_wrong(draft, [{"place": "id", "reason": "expected an id"}])
        if draft.wrong:
            return _form(name, draft, {"etag": tag} if tag else None, wrong=draft.wrong)
    try:
        match do:
            case "save":
                condition = {"If-Match": tag} if tag else {"If-None-Match": "*"}
                sent = {"Content-Type": "application/json", **condition}
                await visit.api.send("PUT", path, draft.text.encode(), headers=sent)
                return Sent(address("subscription", id=name), f"{plain(name)} is saved, and matches every later event.")
            case "pause" | "resume":
                await visit.api.send("POST", f"{path}:{do}")
                done = "has no matches until it is resumed" if do == "pause" else "matches again"
                return Sent(address("subscription", id=name), f"{plain(name)} {done}.")
            case "delete":
                await visit.api.send("DELETE", path, headers={"If-Match": tag} if tag else {})
                return Sent("/console/subscriptions", f"{plain(name)} is deleted.")
    except Refused as refused:
        if refused.kind == "no-token":
            raise
        wrong = refused.errors or [{"reason": refused.detail or refused.title}]
        now = await _stored(visit, name) if refused.kind == "precondition" else None
        if now is None:
            return _form(name, draft, {"etag": tag} if tag else None, wrong=wrong)
        # Saving it again replaces the current version, which is shown next to it.
        draft = draft if draft.text else drafts.shown(neat(now["subscription"]))
        return _form(name, draft, now, wrong=wrong, difference=_difference(neat(now["subscription"]), draft.text))
    raise Refused(400, {"title": "Unknown action", "detail": "expected try, save, pause, resume or delete"})


async def _tried(visit: Visit, name: str, draft: Draft, tag: str) -> Shown:
    now = await _stored(visit, name) if name else None
    # A tag names the version that the text is based on, so that saving still finds a concurrent change.
    row = None if now is None else {**now, "etag": tag or now["etag"]}
    if draft.wrong:
        tried: dict[str, Any] = {"good": False, "errors": draft.wrong}
    else:
        tried = (await visit.api.send("POST", "/v1/subscriptions:try", {"text": draft.text, "id": name})).json
    difference = "" if now is None else _difference(neat(now["subscription"]), draft.text)
    return _form(name, draft, row, wrong=tried["errors"], tried=tried, difference=difference)


async def _stored(visit: Visit, name: str) -> Any:
    try:
        reply = await visit.api.send("GET", f"/v1/subscriptions/{part(name)}")
        return reply.json | {"subscription": read(reply.body)["subscription"]}
    except Refused as refused:
        if refused.kind != "unknown":
            raise
        return None


async def _plan(visit: Visit, name: str) -> Any:
    return await visit.api.get(f"/v1/subscriptions/{part(name)}/plan")


async def _counted(visit: Visit, name: str) -> Any:
    """Return its match counts, from the first available minute; None if another process has them."""
    try:
        counts = await visit.api.get(f"/v1/subscriptions/{part(name)}/matches")
    except Refused as refused:
        if refused.kind != "elsewhere":
            raise
        return None
    first = next((at for at, count in enumerate(counts["matches"]) if count is not None), len(counts["at"]))
    at, matches = counts["at"][first:], counts["matches"][first:]
    rows = [(moment, count) for moment, count in zip(at, matches, strict=True) if count != 0]
    return counts | {"at": at, "matches": matches, "rows": rows[::-1], "unknown": matches.count(None)}


async def _past(visit: Visit, name: str) -> list[Mapping[str, Any]]:
    """Return the changes with their authors, the newest first, each with the difference to the text before."""
    items = read((await visit.api.send("GET", f"/v1/subscriptions/{part(name)}/history")).body)["items"]
    texts = [None if each.get("subscription") is None else neat(each["subscription"]) for each in items]
    return [
        {**each, "difference": "" if text is None else _difference(before or "", text)}
        for each, text, before in zip(items, texts, [*texts[1:], ""], strict=True)
    ]


def _difference(before: str, after: str) -> str:
    try:
        after = neat(read(after))
    except (RecursionError, ValueError):
        pass  # it is shown in its original form
    return "\n".join(list(unified_diff(before.splitlines(), after.splitlines(), lineterm="", n=2))[2:])


def _form(name: str, draft: Draft, row: Any = None, **values: Any) -> Shown:
    context: dict[str, Any] = {
        "wrong": [],
        "plan": None,
        "counted": None,
        "past": [],
        "last": None,
        "tried": None,
        "difference": "",
    }
    status = 422 if values.get("wrong") and not values.get("tried") else 200
    context |= {**values, "wrong": drafts.pointed(draft, values.get("wrong", ()))}
    # The fields of the form with errors, by the API's names of their places.
    places = {each.get("place") for each in context["wrong"]}
    context |= {"operators": drafts.OPERATORS, "types": drafts.TYPES, "roots": drafts.ROOTS, "places": places}
    return Shown("subscription.html", {"name": name, "draft": draft, "held": row, **context}, status)


SUBSCRIPTIONS: Final = View(path="subscriptions", title="Subscriptions", scope="read", show=show_list)
SUBSCRIPTION: Final = View(
    path="subscription", title="Subscription", scope="read", show=show_one, act=act, is_listed=False, within="subscriptions"
)
