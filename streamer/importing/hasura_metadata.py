"""The select permissions in Hasura's metadata: what `hasura metadata export` writes, and what its API `export_metadata` returns.

{"table": {"schema": "public", "name": "orders"},
 "select_permissions": [{"role": "clerk", "permission": {"filter": {"status": {"_eq": "paid"}}}}]}

A permission becomes a subscription to the rows that the role may see: `public.orders:clerk`, of the collection `public.orders`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any, Final, TypeAlias

from streamer.importing.rules import Rule, refuse

#: A function that translates a boolean expression at a place into members of a subscription.
Translate: TypeAlias = Callable[[Any, str], Mapping[str, Any]]

#: The kinds of a source whose conditions have PostgreSQL's meaning.
_POSTGRESQL: Final = ("postgres", "pg", "citus")
_PERMISSIONS: Final = "select_permissions"
_INCLUDED: Final = "!include"


def permission_rules(document: Any, translate: Translate) -> Iterator[Rule] | None:
    """Return the select permissions of a document as rules; None if the document is no metadata."""
    if isinstance(document, dict) and isinstance(document.get("metadata"), dict):
        document = document["metadata"]
    if isinstance(document, dict) and isinstance(document.get("sources"), list):
        return _of_sources(document["sources"], translate)
    if isinstance(document, dict) and "version" in document and isinstance(document.get("tables"), list):
        document = document["tables"]
    tables = document if isinstance(document, list) else [document]
    return _of_tables(tables, "", translate) if tables and all(map(_is_table, tables)) else None


def _is_table(value: Any) -> bool:
    """Return whether a value is an entry of a list of tables, not a condition on a column with the name `table`."""
    if not isinstance(value, dict):
        return isinstance(value, str) and value.startswith(_INCLUDED)
    table = value.get("table")
    if isinstance(table, str):
        return any(str(name).endswith("_permissions") for name in value)
    return isinstance(table, dict) and isinstance(table.get("name"), str)


def _of_sources(sources: list[Any], translate: Translate) -> Iterator[Rule]:
    for index, source in enumerate(sources):
        place = f"sources[{index}]"
        if not isinstance(source, dict):
            yield Rule(place, partial(refuse, "expected an object with `tables`"))
        elif (kind := source.get("kind", "postgres")) not in _POSTGRESQL:
            reason = f"its database is {kind!r}; only conditions with PostgreSQL's meaning have a translation"
            yield Rule(place, partial(refuse, reason, "kind"))
        else:
            tables = source.get("tables", [])
            prefix = f"{source.get('name', index)}." if len(sources) > 1 else ""
            yield from _of_tables(tables if isinstance(tables, list) else [tables], prefix, translate)


def _of_tables(tables: list[Any], prefix: str, translate: Translate) -> Iterator[Rule]:
    for index, each in enumerate(tables):
        if not isinstance(each, dict) or not _is_table(each):
            reason = (
                "expected a table; if it is in another file, import that file, or what `hasura metadata export -o json` prints"
            )
            yield Rule(f"{prefix}tables[{index}]", partial(refuse, reason))
            continue
        name = _name(each["table"])
        permissions = each.get(_PERMISSIONS)
        for at, entry in enumerate(permissions if isinstance(permissions, list) else []):
            yield _rule(entry, name, f"{prefix}{name}: {_PERMISSIONS}[{at}]", prefix, translate)


def _rule(entry: Any, table: str, place: str, prefix: str, translate: Translate) -> Rule:
    permission = entry.get("permission") if isinstance(entry, dict) else None
    if not isinstance(permission, dict) or not isinstance(entry.get("role"), str):
        return Rule(place, partial(refuse, "expected an object with a `role` and a `permission`"))
    members = {"id": f"{prefix}{table}:{entry['role']}", "collection": table, "labels": {"role": entry["role"]}}
    return Rule(place, partial(translate, permission.get("filter", {}), "permission.filter"), members)


def _name(table: str | Mapping[str, Any]) -> str:
    if isinstance(table, str):
        return f"public.{table}"
    return f"{table.get('schema', 'public')}.{table['name']}"
