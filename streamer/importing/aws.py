"""Rules in the files that users of AWS have: answers of `aws`, templates of CloudFormation and SAM, and Terraform's JSON.

{"Resources": {"OrderPaid": {"Type": "AWS::Events::Rule", "Properties": {"EventPattern": {..}}}}}
{"resource": {"aws_cloudwatch_event_rule": {"order_paid": {"event_pattern": "{..}"}}}}
{"planned_values": {"root_module": {"resources": [{"type": "aws_cloudwatch_event_rule", "values": {..}}]}}}

Each becomes a `Declared` with the names that the API of AWS has, whatever file it is from. Values that only a deployment knows,
such as `!Ref` and `${var.name}`, stay as they are: an importer refuses one that decides what matches. What a plan does not know
yet is missing in its values, so it becomes `UNKNOWN`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, NoReturn, final

from streamer.errors import SubscriptionError
from streamer.importing.rules import Rule, is_yaml, json_rules, parsed, parsed_sequence, wrapped_rule
from streamer.subscriptions.places import Place

#: A resource of a configuration in JSON whose value is an expression, such as "${jsonencode({"source": ["aws.ec2"]})}".
_ENCODED: Final = re.compile(r"\$\{\s*jsonencode\((.*)\)\s*\}", re.DOTALL)
_INTERPOLATED: Final = re.compile(r"[$%]\{")
#: The members of a resource of a configuration that repeat it.
_REPEATED: Final = ("count", "for_each")
#: The reason why an expression of Terraform is refused.
EXPRESSION: Final = "an expression of Terraform. Import what `terraform show -json` prints: it has the value"
#: The arguments of an intrinsic function that name a resource of the template.
_REFERENCES: Final = ("Ref", "Fn::GetAtt")


@final
@dataclass(frozen=True, slots=True)
class Kind:
    """The forms in which one kind of rule stands in files.

    Attributes:
        resource: its type in CloudFormation.
        events: its types among the events of a function in SAM.
        terraform: its type in Terraform.
        listed: the member that lists such rules in an answer of AWS.
        names: a member's name in the API, by its name in SAM and Terraform.
    """

    resource: str
    events: frozenset[str]
    terraform: str
    listed: str
    names: Mapping[str, str]


@final
@dataclass(frozen=True, slots=True)
class Declared:
    """A rule as a file declares it.

    Attributes:
        name: its name in the template; empty in an answer of AWS.
        members: its members, by their name in the API.
        spelled: the name of a member in the file, by its name in the API.
        condition: the condition of the template under which it is deployed, if there is one.
        has_expressions: whether its texts may contain expressions of Terraform.
    """

    name: str
    members: Mapping[str, Any]
    spelled: Mapping[str, str] = field(default_factory=dict)
    condition: str | None = None
    has_expressions: bool = False

    def text(self, member: str) -> str | None:
        """Return a member that is a text; None if it is missing, or only a deployment knows it."""
        value = self.members.get(member)
        is_known = isinstance(value, str) and value and not self.is_expression(member)
        return str(value) if is_known else None

    def is_expression(self, member: str) -> bool:
        """Return whether a member is a text with an expression of Terraform."""
        value = self.members.get(member)
        return self.has_expressions and isinstance(value, str) and _INTERPOLATED.search(value) is not None

    def value(self, member: str) -> Any:
        """Return a member in which nothing depends on the deployment; JSON in a text is read. If it is missing, return None.

        Raises:
            SubscriptionError: it contains an intrinsic function or an expression, or a text is not JSON.
        """
        value = self.members.get(member)
        if isinstance(value, str):
            value = _from_text(value, self.place(member), has_expressions=self.has_expressions)
        refuse_unresolved(value, self.place(member))
        return value

    def place(self, member: str) -> str:
        return self.spelled.get(member, member)


def declared_rules(text: str, kind: Kind, translate: Callable[[Any], Mapping[str, Any]]) -> Iterator[Rule]:
    """Yield the rules of a file.

    Args:
        translate: returns the members of a subscription for a `Declared`, or for a rule that stands alone: any value of JSON.

    Raises:
        SubscriptionError: the file is neither JSON nor YAML, or is no template.
    """
    if is_yaml(text):
        from streamer.importing.template_yaml import read_template

        document = read_template(text)
        if not isinstance(document, dict):
            raise SubscriptionError("expected JSON, or a template in YAML: an object with Resources")
    else:
        try:
            documents = [(f"line {line}", each) for line, each in parsed_sequence(text)]
        except SubscriptionError:
            yield from json_rules(text, translate)  # the error with its place, and the lines without one
            return
        if len(documents) > 1:
            for place, each in documents:
                yield from _document_rules(place, each, kind, translate)
            return
        document = documents[0][1] if documents else []
    if isinstance(document, list):
        for index, each in enumerate(document):
            yield from _document_rules(f"[{index}]", each, kind, translate)
    else:
        yield from _document_rules("", document, kind, translate)


def _document_rules(place: str, document: Any, kind: Kind, translate: Callable[[Any], Mapping[str, Any]]) -> Iterator[Rule]:
    """Yield the rules that a document declares, or the rule that it is."""
    declarations = _declarations(document, kind)
    if declarations is None:
        yield wrapped_rule(place, document, translate)
        return
    for at, each in declarations:
        yield Rule(": ".join(filter(None, (place, at))), _later(translate, each))


def refuse_unresolved(value: Any, place: str) -> None:
    """Refuse a value of which a part depends on the deployment or on the reader of the file."""
    todo: list[tuple[Any, Place]] = [(value, Place(None, place))]
    while todo:
        each, at = todo.pop()
        if (function := _intrinsic(each)) is not None:
            _fail(f"{function} has a value only after deployment. Write the value in its place, or import the deployed rule", at)
        if each is UNKNOWN:
            _fail("known only after apply. Apply the plan, and import what `terraform show -json` prints then", at)
        if isinstance(each, Unclear):
            _fail(f"readers of YAML differ about {str(each)!r}. Put a text in quotes, and write a number as in JSON", at)
        # Reversed, so that the first one is reported.
        if isinstance(each, dict):
            todo += [(inner, Place(at, str(name))) for name, inner in reversed(each.items())]
            todo += [(name, at) for name in each if isinstance(name, Unclear)]
        elif isinstance(each, list):
            todo += [(inner, Place(at, index)) for index, inner in enumerate(each)][::-1]


def reference(value: Any) -> str | None:
    """Return a text as it is, or the name of the resource that an intrinsic function refers to; None for anything else."""
    if isinstance(value, str):
        return str(value)
    if _intrinsic(value) not in _REFERENCES:
        return None
    (named,) = value.values()
    first = named[0] if isinstance(named, list) and named else named
    return first.partition(".")[0] if isinstance(first, str) else None


@final
class Unclear(str):
    """A plain word of a template in YAML that is a text, a number or a boolean, depending on the reader: `yes`, `010`, `1e3`."""

    __slots__ = ()


#: A value that a plan of Terraform does not know yet.
UNKNOWN: Final = object()


def _later(translate: Callable[[Any], Mapping[str, Any]], declared: Declared) -> Callable[[], Mapping[str, Any]]:
    def translated() -> Mapping[str, Any]:
        if declared.has_expressions and (name := next((each for each in _REPEATED if each in declared.members), None)):
            raise SubscriptionError(f"only Terraform counts its rules. {EXPRESSION.partition('. ')[2]}", place=name)
        for name in declared.members:
            # Such a function may add any member: even a policy to a subscription that seems to have none.
            if str(name).startswith("Fn::"):
                raise SubscriptionError(
                    f"{name} decides its members at deployment. Import the processed template", place=str(name)
                )
        return translate(declared)

    return translated


def _declarations(document: Any, kind: Kind) -> Iterator[tuple[str, Declared]] | None:
    """Return the rules that a document declares, each with its place; None if the document is a rule itself."""
    if not isinstance(document, dict):
        return None
    _refuse_other_files(document)
    listed = document.get(kind.listed)
    if isinstance(listed, list) and all(isinstance(each, dict) for each in listed):
        return ((f"{kind.listed}[{index}]", Declared("", each, {})) for index, each in enumerate(listed))
    if isinstance(document.get("Resources"), dict):
        return _in_template(document["Resources"], kind)
    if _is_configuration(document.get("resource")):
        return _in_configuration(document["resource"], kind)
    for name in ("planned_values", "values"):
        if isinstance(document.get(name), dict) and isinstance(document[name].get("root_module"), dict):
            return _in_module(document[name]["root_module"], kind, _unknown_members(document))
    return None


def _refuse_other_files(document: Mapping[str, Any]) -> None:
    """Refuse files that have such rules in another form, and name the one to import."""
    if isinstance(document.get("version"), int) and isinstance(document.get("resources"), list):
        raise SubscriptionError("a state file of Terraform. Import what `terraform show -json` prints")
    if isinstance(document.get("service"), str) and isinstance(document.get("provider"), dict | str):
        reason = (
            "a configuration of the Serverless Framework. Import the template that `serverless package` writes to .serverless"
        )
        raise SubscriptionError(reason)


def _is_configuration(resource: Any) -> bool:
    """Return whether a member `resource` is that of a `.tf.json`: the resources by type and name, not a pattern on that field."""
    types = [each for outer in _blocks(resource) for each in outer.items()]
    bodies = [body for _, named in types for each in _blocks(named) for body in each.values()]
    are_nested = all(map(_are_blocks, [resource, *(named for _, named in types), *bodies]))
    return are_nested and any(str(name).startswith("aws_") for name, _ in types)


def _are_blocks(value: Any) -> bool:
    return isinstance(value, dict) or (isinstance(value, list) and all(isinstance(each, dict) for each in value))


def _unknown_members(document: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """Return the members that a plan does not know yet, by the address of their resource."""
    by_address: dict[str, dict[str, Any]] = {}
    for each in _blocks(document.get("resource_changes")):
        change = each.get("change")
        unknown = change.get("after_unknown") if isinstance(change, dict) else None
        if isinstance(unknown, dict):
            by_address[str(each.get("address"))] = {name: UNKNOWN for name, is_unknown in unknown.items() if is_unknown is True}
    return by_address


def _in_template(resources: Mapping[str, Any], kind: Kind) -> Iterator[tuple[str, Declared]]:
    for name, resource in resources.items():
        at = str(Place(Place(None, "Resources"), str(name)))
        if str(name).startswith("Fn::"):
            raise SubscriptionError("a loop has resources only after deployment. Import the processed template", place=at)
        if not isinstance(resource, dict):
            continue
        properties, condition = resource.get("Properties"), reference(resource.get("Condition"))
        functions = {each: value for each, value in resource.items() if str(each).startswith("Fn::")}
        if resource.get("Type") == kind.resource:
            yield at, Declared(name, (properties if isinstance(properties, dict) else {}) | functions, {}, condition)
        elif str(resource.get("Type")).startswith("AWS::Serverless::") and isinstance(properties, dict):
            events = properties.get("Events")
            for event, members in events.items() if isinstance(events, dict) else ():
                if isinstance(members, dict) and str(members.get("Type")) in kind.events:
                    # SAM names the rule so, too.
                    yield f"{at}.Events.{event}", _renamed(f"{name}{event}", members.get("Properties"), kind, condition)


def _in_configuration(resource: Any, kind: Kind) -> Iterator[tuple[str, Declared]]:
    """Yield the rules of a `.tf.json`, in which a block may be an object or a list of objects."""
    for outer in _blocks(resource):
        for types in _blocks(outer.get(kind.terraform)):
            for name, body in types.items():
                for each in _blocks(body):
                    yield f"resource.{kind.terraform}.{name}", _renamed(name, each, kind, has_expressions=True)


def _blocks(value: Any) -> list[dict[str, Any]]:
    return [each for each in (value if isinstance(value, list) else [value]) if isinstance(each, dict)]


def _in_module(root: Mapping[str, Any], kind: Kind, unknown: Mapping[str, Mapping[str, Any]]) -> Iterator[tuple[str, Declared]]:
    """Yield the rules of a plan or a state, which has their final values.

    Args:
        unknown: the members that a plan does not know yet, by address.
    """
    modules = [root]
    while modules:
        module = modules.pop()
        modules += _blocks(module.get("child_modules"))[::-1]
        for each in _blocks(module.get("resources")):
            if each.get("type") == kind.terraform and each.get("mode") != "data":
                address, values = str(each.get("address", "")), each.get("values")
                values = {**(values if isinstance(values, dict) else {}), **unknown.get(address, {})}
                # Instances of `count` and `for_each` have one name, but an address each.
                yield address, _renamed(address or str(each.get("name")), values, kind)


def _renamed(name: str, declared: Any, kind: Kind, condition: str | None = None, *, has_expressions: bool = False) -> Declared:
    members = declared if isinstance(declared, dict) else {}
    names = {member: kind.names.get(member, member) for member in members}
    values = {names[member]: value for member, value in members.items()}
    return Declared(name, values, {new: old for old, new in names.items()}, condition, has_expressions)


def _intrinsic(value: Any) -> str | None:
    """Return the name of the intrinsic function that an object calls, if it calls one."""
    if not isinstance(value, dict) or len(value) != 1:
        return None
    ((name, argument),) = value.items()
    is_one = isinstance(name, str) and (name.startswith("Fn::") or (name in ("Ref", "Condition") and isinstance(argument, str)))
    return name if is_one else None


def _from_text(text: str, place: str, *, has_expressions: bool) -> Any:
    encoded = _ENCODED.fullmatch(text.strip()) if has_expressions else None
    inner = encoded[1] if encoded else text
    try:
        if has_expressions and _INTERPOLATED.search(inner):
            raise SubscriptionError(EXPRESSION)
        return parsed(inner)
    except SubscriptionError as error:
        # The argument of jsonencode is an object of Terraform, which may also be JSON.
        reason = EXPRESSION if encoded else ": ".join(filter(None, (error.place, error.reason)))
        raise SubscriptionError(reason, place=place) from None


def _fail(reason: str, place: Place) -> NoReturn:
    raise SubscriptionError(reason, place=str(place))
