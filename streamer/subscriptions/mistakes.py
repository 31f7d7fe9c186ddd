"""Probable mistakes: a subscription is valid, but its meaning most likely differs from the author's intent.

For example, a field is written as in another language, a pattern begins inside of the document, or a name contains a star. All of
these are allowed, and a document may have such names. So a finding is a hint, and only forms that are hardly ever intended are
reported. If you want a field exactly as written, write it as a JSON Pointer: pointers are never reported.

Findings depend only on the text of the subscription and the layout, so one implementation serves both backends. Cost: linear in
the text, some microseconds for most.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from streamer.errors import SubscriptionError
from streamer.events.layout import PARTS, EventLayout, encode_pointer
from streamer.model import Dialect, Pointer, TopicDialect
from streamer.subscriptions.cel_text import cel_literal, cel_path
from streamer.subscriptions.filters import parse_filter, parse_path
from streamer.subscriptions.groups import placed_filters
from streamer.subscriptions.operators import OPERATORS
from streamer.subscriptions.patterns import is_choice
from streamer.subscriptions.slips import slip_of_filter, slip_of_pattern, slips_of_cel
from streamer.subscriptions.subscription import EVERY
from streamer.subscriptions.topics import SYNTAX, parse_topic

#: Longer texts are left out of messages.
_LONGEST: Final = 200

#: A step to any element of a list, in place of a name. Any other integer is the index of an element.
_ANY: Final = -1
_Steps = Sequence[str | int]

#: A name, with brackets after it; a number of up to two digits between dots is rarely a name.
_STEP: Final = re.compile(r"""([^.\[\]]*)((?:\[(?:[0-9]{1,9}|\*|'[^'\[\]]*'|"[^"\[\]]*")?\])*)(?:\.|$)""")
_BRACKETS: Final = re.compile(r"\[([^\]]*)\]")
_INDEX: Final = re.compile(r"0|[1-9][0-9]?")

#: Names that envelopes carry in addition to the parts of a layout, and that patterns use.
_BESIDE: Final = frozenset(
    "account commit control database dataschema datacontenttype gtid headers key metadata op position primary_key region "
    "resources schema server_id source specversion subject table thread_id transaction ts_ms ts_ns ts_us version xid "
    "xoffset".split()
)
_CHANGE: Final = EventLayout()


def probable_mistakes(members: Mapping[str, Any], layout: EventLayout, topic_dialect: TopicDialect = "amqp") -> Iterator[str]:
    """Yield for each probable mistake its place, the odd form, and the probable meaning.

    Args:
        members: the members of a valid subscription, as in its JSON text.
        layout: the layout of the events.
        topic_dialect: the dialect of a topic pattern without one.
    """
    for place, condition in placed_filters(members.get("filters", ())):
        if (said := _of_filter(condition, layout)) is not None:
            yield f"{place}.field: {said}"
        elif (said := slip_of_filter(condition, _root(condition), parse_path(condition["field"]))) is not None:
            yield f"{place}.value: {said}"
    if (cel := members.get("cel")) is not None:
        yield from (f"cel: {said}" for said in slips_of_cel(cel))
    if (pattern := members.get("pattern")) is not None:
        yield from _of_pattern(pattern, members.get("dialect", "eventbridge"), layout)
    if (topic := members.get("topic")) is not None and (
        said := _of_topic(topic, members.get("topic_dialect", topic_dialect))
    ) is not None:
        yield f"topic: {said}"
    for part in ("tenant", "collection"):
        if (name := members.get(part)) is not None and (said := _of_name(part, name)) is not None:
            yield f"{part}: {said}"


# Fields


def _of_filter(condition: Mapping[str, Any], layout: EventLayout) -> str | None:
    text = condition["field"]
    if text.startswith("/") or len(text) > _LONGEST:
        return None
    names = tuple(text.split("."))
    steps = list(_steps(text))
    if len(steps) > 1 and steps[0] == "$":
        del steps[0]
    root, steps = _below_root(steps, condition, layout)
    if not steps or not isinstance(steps[0], str) or tuple(steps) == names:
        return None
    meant = _meant(steps, root, condition)
    field, same = cel_path(_root(condition), names), _quoted(encode_pointer(names))
    return f"this looks for {field}; probably meant: {meant} (as it stands: {same})"


def _root(condition: Mapping[str, Any]) -> str:
    root: str = condition.get("root", "data")
    return root


def _below_root(steps: list[str | int], condition: Mapping[str, Any], layout: EventLayout) -> tuple[str, list[str | int]]:
    """Return the root and the path from it for a path that probably begins at the event or at a variable of CEL."""
    if () in layout.pointers("data"):
        # The document is the whole event, and may be an envelope that the layout does not describe.
        return _root(condition), steps
    if len(steps) > 1 and steps[0] == "envelope" and _may_be_of_envelope(condition, layout):
        return "envelope", steps[1:]
    for root in ("data", "before"):
        ways = {way for pointer in layout.pointers(root) for way in (pointer, pointer[-1:])} | {(root,)}
        for way in sorted(ways, key=len, reverse=True):
            if len(steps) > len(way) and tuple(steps[: len(way)]) == way:
                return root, steps[len(way) :]
    return _root(condition), steps


def _may_be_of_envelope(condition: Mapping[str, Any], layout: EventLayout) -> bool:
    return next(layout.records(), None) is not None and not OPERATORS[condition["op"]].mentions_before


def _steps(text: str) -> Iterator[str | int]:
    """Yield names and indexes as another language would read them; only names if the text has another form."""
    steps: list[str | int] = []
    at = 0
    while at < len(text):
        step = _STEP.match(text, at)
        if step is None or not step[0]:
            yield from text.split(".")
            return
        name, at = step[1], step.end()
        if name:
            steps.append(int(name) if steps and _INDEX.fullmatch(name) else name)
        brackets = _BRACKETS.findall(step[2])
        steps += [_ANY if each in ("", "*") else int(each) if each.isdigit() else each[1:-1] for each in brackets]
    yield from steps


def _meant(steps: _Steps, root: str, condition: Mapping[str, Any]) -> str:
    if steps[-1] == _ANY and condition["op"] == "contains":
        steps = steps[:-1]
    names = tuple(step for step in steps if isinstance(step, str))
    if root != "before" and len(names) == len(steps):
        dotted = all(name and "." not in name and "/" not in name for name in names)
        field = _quoted(".".join(names) if dotted else encode_pointer(names))
        return field if root == _root(condition) else f'{field} with "root": "{root}"'
    return f'"cel": {_quoted(_cel(steps, root, condition))}'


def _cel(steps: _Steps, root: str, condition: Mapping[str, Any]) -> str:
    """Return a filter with indexes in its path as CEL; for operators that CEL lacks, and for long values, only the path."""
    opening, path, lists = "", cel_path(root, ()), 0
    for step in steps:
        if isinstance(step, str):
            path = cel_path(path, (step,))
        elif step != _ANY:
            path += f"[{step}]"
        else:
            lists += 1
            element = "x" * lists
            opening, path = f"{opening}{path}.exists({element}, ", element
    return f"{opening}{_condition(path, condition)}{')' * lists}"


def _condition(path: str, condition: Mapping[str, Any]) -> str:
    op = condition["op"]
    if op == "exists" and condition["value"] is True and "." in path and not path.endswith("]"):
        return f"has({path})"
    if op in ("exists", "changed", "changed_to", "changed_from"):
        return f"{path} ..."
    # The path comes first in each of them. A regexp has no plain dot, so it stays.
    count = -1 if condition.get("ignore_case") else 1
    printed = parse_filter({**condition, "field": "f", "root": "data"}).to_cel().replace("data.f", path, count)
    return printed if len(printed) <= _LONGEST else f"{path} ..."


# Patterns


def _of_pattern(pattern: Any, dialect: Dialect, layout: EventLayout) -> Iterator[str]:
    """Yield the first mistake of a pattern; after correcting it, the author sees the next."""
    if isinstance(pattern, str | bytes):
        try:
            pattern = json.loads(pattern)
        except RecursionError:
            return
    if (said := _of_top_names(pattern, dialect, layout)) is not None:
        yield f"pattern: {said}"
    elif (slip := slip_of_pattern(pattern, dialect, layout)) is not None:
        place, said = slip
        yield f"{place}: {said}"


def _of_top_names(pattern: Mapping[str, Any], dialect: Dialect, layout: EventLayout) -> str | None:
    at = next(iter(layout.pointers("data")), ())
    names = list(_top_names(pattern, dialect))
    if not at or not _envelope(layout).isdisjoint(names):
        return None
    begin = f"{at[-1]}."
    if len(pattern) == 1 and names[0].startswith(begin) and len(names[0]) <= _LONGEST:
        steps = names[0].removeprefix(begin).split(".")
        return f"{_quoted(names[0])} is one name, dots and all; probably meant: {_below((*at, *steps), pattern[names[0]])}"
    places = " or ".join(map(encode_pointer, layout.pointers("data")))
    return (
        f"{_quoted(names[0][:_LONGEST])} is looked for at the top of the event, and the document stands in {places}; "
        f"probably meant: {_below(at, pattern)}"
    )


def _top_names(pattern: Mapping[str, Any], dialect: Dialect) -> Iterator[str]:
    """Yield the names that a pattern requires of the event itself, in all alternatives."""
    pending = [pattern]
    for each in pending:
        for name, value in each.items():
            if not isinstance(value, Mapping) and is_choice(name, value, dialect):
                pending.extend(value)
            else:
                yield name


def _envelope(layout: EventLayout) -> frozenset[str]:
    """Return the names that an event of this layout may have at its top."""
    tops = frozenset(pointer[0] for part in PARTS for pointer in layout.pointers(part) if pointer)
    return tops if layout == _CHANGE else tops | _BESIDE


def _below(at: Pointer, pattern: Any) -> str:
    """Return the text of a pattern nested below a place."""
    short = "{...}" if isinstance(pattern, Mapping) else "[...]"
    try:
        text = json.dumps(pattern, ensure_ascii=False, allow_nan=False)
    except (RecursionError, TypeError, ValueError):
        # Nested too deeply, or with a number beyond float64.
        text = short
    inner = text if len(text) <= _LONGEST else short
    return "".join(f"{{{_quoted(name)}: " for name in at) + inner + "}" * len(at)


# Topics, and names with stars


def _of_topic(topic: str, dialect: TopicDialect) -> str | None:
    if len(topic) > _LONGEST:
        return None
    words, levels = topic.split("."), topic.split("/")
    word = SYNTAX[dialect].word
    if dialect == "mqtt":
        is_dotted = len(levels) == 1 < len(words) and (words[-1] == ">" or "*" in words)
        return _or_another("levels are separated by slashes", topic, "nats", dialect) if is_dotted else None
    if len(levels) > 1 and not {"+", "#"}.isdisjoint(levels):
        return _or_another(f"this is written as in MQTT, and {word}s are separated by dots", topic, "mqtt", dialect)
    if dialect == "nats" and words[-1] == "#":
        return _or_another("`#` is a token like others", topic, "amqp", dialect)
    if dialect == "nats":
        is_wild = any(("*" in word or word.endswith(">")) and word not in ("*", ">") for word in words)
        like = _like("topic", topic.replace(">", "*")) if is_wild else ""
        return f"a wildcard is a whole token; probably meant: no topic and {like}" if is_wild else None
    if words[-1] == ">":
        return _or_another("this is written as in NATS, and `>` is a word like others", topic, "nats", dialect)
    if "**" in words:
        meant = ".".join("#" if word == "**" else word for word in words)
        return f"`**` is a word like others; probably meant: {_quoted(meant)}"
    if "#" not in words and any("*" in word and word != "*" for word in words):
        return f"a star stands for a whole word; probably meant: no topic and {_like('topic', topic)}"
    return None


def _or_another(odd: str, topic: str, written: TopicDialect, dialect: TopicDialect) -> str | None:
    """Return the odd form and, for a pattern, the intended one: the topic in its dialect, or the dialect it is written in."""
    old, new = SYNTAX[written], SYNTAX[dialect]
    many = [new.one, new.many] if written == "nats" and dialect == "amqp" else [new.many]
    words: list[str] = []
    for word in topic.split(old.separator):
        words += many if word == old.many else [new.one if word == old.one else word]
    meant = new.separator.join(words)
    choices = {_quoted(meant): (meant, dialect), f'"topic_dialect": "{written}"': (topic, written)}
    said = " or ".join(shown for shown, (text, of) in choices.items() if _is_pattern(text, of))
    return f"{odd}; probably meant: {said}" if said else None


def _is_pattern(text: str, dialect: TopicDialect) -> bool:
    try:
        parse_topic(text, dialect)
    except SubscriptionError:
        return False
    return True


def _of_name(part: str, name: str) -> str | None:
    if name == EVERY or "*" not in name or len(name) > _LONGEST:
        return None
    instead = '"tenant": "*"' if part == "tenant" else f"no {part}"
    return f"this is the name of one {part}, star and all; probably meant: {instead} and {_like(part, name)}"


def _like(part: str, glob: str) -> str:
    """Return the meaning of a name with stars in a shell, as the text of a member of a subscription."""
    pieces = glob.split("*")
    texts = [piece for piece in pieces if piece]
    if len(texts) == 1:
        method = {(True, False): "startsWith", (False, True): "endsWith"}.get((bool(pieces[0]), bool(pieces[-1])), "contains")
        return f'"cel": {_quoted(f"{part}.{method}({cel_literal(texts[0])})")}'
    regexp = "^" + ".*".join(map(re.escape, pieces)) + "$"
    return f'"cel": {_quoted(f"{part}.matches({cel_literal(regexp)})")}'


def _quoted(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)
