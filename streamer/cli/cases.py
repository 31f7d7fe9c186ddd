"""The command `streamer test`: unit tests of subscriptions, reported for people and for CI."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import click

import streamer
from streamer.cli.inputs import opened, shown_name
from streamer.cli.output import annotation, show_json
from streamer.cli.setup import CONFIG, DEFAULT_TENANT, SOFT_DELETE, SUBSCRIPTIONS, event_shape, output_option, set_up
from streamer.errors import BulkConfigError
from streamer.terminal import EXIT_CODES, OK, SOME_BAD, USAGE, WIDTH, fail, note, printable, show

if TYPE_CHECKING:
    from streamer.engine.cases import CaseFile, Difference, Result


class Report(StrEnum):
    """The format of results."""

    text = "text"
    json = "json"
    junit = "junit"
    github = "github"


@click.command(name="test", short_help="Test subscriptions by cases of events.", epilog=EXIT_CODES.format(one="a case failed"))
@click.argument("files", metavar="CASES...", nargs=-1, required=True, help="YAML files of cases.")
@SUBSCRIPTIONS
@CONFIG
@output_option(Report.text, "text: for people; json: an object a case; junit: XML; github: annotations.")
@event_shape
@DEFAULT_TENANT
@SOFT_DELETE
def command(
    files: Sequence[str],
    subscriptions: Sequence[str],
    config: str | None,
    report: Report,
    format: str | None,
    layout: str | None,
    default_tenant: str | None,
    soft_delete: str | None,
) -> None:
    """Test subscriptions: match the events of cases, and compare the matches with the expected ones.

    The options override the settings of a file of cases.
    """
    from streamer.engine.cases import run

    played: list[tuple[CaseFile, list[tuple[Result, float]]]] = []
    for name in files:
        cases = _read(name, report)
        files_of = subscriptions or cases.files
        setup = set_up(config, files_of, format, layout, default_tenant, soft_delete, events=name, needs_files=False)
        if format is None and layout is None and cases.layout is not None:
            setup = replace(setup, options={**setup.options, "layout": cases.layout})
        engine = setup.engine()
        try:
            if not subscriptions:
                cases.fill(engine)
            if not len(engine):
                fail(f"{shown_name(name)}: no subscriptions; name them in the file, or by --subscriptions")
            cases.check(engine)
        except BulkConfigError as bulk:
            _refuse(bulk, report)
        results = []
        for case in cases.cases:
            began = time.perf_counter()
            try:
                result = run(engine, case)
            except OSError as error:
                fail(f"{shown_name(name)}:{case.line}:{case.column}: {case.file}: {error.strerror or error}")
            results.append((result, time.perf_counter() - began))
        played.append((cases, results))
    _WRITERS[report](played)
    sys.exit(OK if all(result.passed for _, results in played for result, _ in results) else SOME_BAD)


def _read(name: str, report: Report) -> CaseFile:
    from streamer.engine.cases import BOUNDS, read_cases

    with opened(name) as source:
        # One byte more than the limit shows that there are more.
        text = b"".join(iter(lambda: source.read(BOUNDS.max_bytes + 1), b""))[: BOUNDS.max_bytes + 1]
    try:
        return read_cases(text, shown_name(name), Path() if name == "-" else Path(name).parent)
    except BulkConfigError as bulk:
        _refuse(bulk, report)


def _refuse(bulk: BulkConfigError, report: Report) -> NoReturn:
    """Print all errors of a file, and end."""
    for error in bulk.errors:
        note(str(error))
        if report is Report.github:
            about = ": ".join(filter(None, (error.place, error.reason)))
            show(annotation(about, file=error.source or "", line=error.line, column=error.column))
    sys.exit(USAGE)


_Results = Sequence[tuple["CaseFile", Sequence[tuple["Result", float]]]]


def _text(files: _Results) -> None:
    for cases, results in files:
        show(f"{cases.name} {''.join('.' if result.passed else 'F' for result, _ in results)}")
    failed = [(cases, result) for cases, results in files for result, _ in results if not result.passed]
    if failed:
        show(f"\n{' FAILURES ':=^{WIDTH}}")
    for cases, result in failed:
        show(f"{f' {printable(result.case.name)} ':_^{WIDTH}}")
        show("\n".join(_story(cases, result)) + "\n")
    if failed:
        show(f"{' short summary ':=^{WIDTH}}")
    for cases, result in failed:
        show(f"FAILED {cases.name}:{result.case.line} {printable(result.case.name)} - {result.differences[0].summary}")
    show(_counts(files))


def _counts(files: _Results) -> str:
    results = [result for _, results in files for result, _ in results]
    failed = sum(not result.passed for result in results)
    return ", ".join([*([f"{failed:,} failed"] if failed else []), f"{len(results) - failed:,} passed"])


def _story(cases: CaseFile, result: Result) -> Iterator[str]:
    """Yield the lines of the report of a failed case."""
    yield f"{cases.name}:{result.case.line}:{result.case.column}"
    for difference in result.differences:
        yield ""
        yield from _difference(difference, several=result.events > 1 or result.case.file is not None)
    if (more := result.failed - len(result.differences)) > 0:
        yield f"\nand {more:,} more of {result.events:,} events"


def _difference(difference: Difference, *, several: bool) -> Iterator[str]:
    yield f"event{f' {difference.number}' if several else ''}: {_event(difference.event)}"
    if difference.error is not None:
        yield f"E   {printable(difference.error)}"
        return
    yield "E   - expected, + matched"
    yield from (f"E   {printable(line)}" for line in difference.diff())
    for explanation in difference.explanations:
        yield "E"
        yield from (f"E   {line}" for line in printable(str(explanation), keep="\n").splitlines())


def _event(event: Any) -> str:
    text = event if isinstance(event, str) else event.decode(errors="replace") if isinstance(event, bytes) else json.dumps(event)
    text = " ".join(text.split())
    return printable(text if len(text) <= WIDTH else f"{text[: WIDTH - 3]}...")


def _json(files: _Results) -> None:
    for cases, results in files:
        for result, _ in results:
            members = {
                "file": cases.name,
                "line": result.case.line,
                "column": result.case.column,
                "name": result.case.name,
                "passed": result.passed,
                "events": result.events,
                "failed": result.failed,
                "differences": [
                    {
                        "event": each.number,
                        "error": each.error,
                        "missing": each.missing,
                        "unexpected": each.unexpected,
                        "differing": each.differing,
                        "diff": [] if each.error is not None else list(each.diff()),
                    }
                    for each in result.differences
                ],
            }
            show_json(members)
    note(_counts(files))


def _junit(files: _Results) -> None:
    from xml.etree import ElementTree

    root = ElementTree.Element("testsuites", name=f"streamer {streamer.__version__}")
    for cases, results in files:
        failed = sum(not result.passed for result, _ in results)
        counts = {"tests": str(len(results)), "failures": str(failed), "errors": "0", "skipped": "0"}
        seconds = sum(seconds for _, seconds in results)
        suite = ElementTree.SubElement(root, "testsuite", {"name": printable(cases.name), **counts, "time": f"{seconds:.6f}"})
        for result, seconds in results:
            named = {"classname": printable(cases.name), "name": printable(result.case.name)}
            place = {"file": printable(cases.name), "line": str(result.case.line), "time": f"{seconds:.6f}"}
            case = ElementTree.SubElement(suite, "testcase", {**named, **place})
            if not result.passed:
                failure = ElementTree.SubElement(case, "failure", message=printable(result.differences[0].summary))
                # XML has no way to write control characters.
                failure.text = printable("\n".join(_story(cases, result)), keep="\n")
    ElementTree.indent(root)
    show(f'<?xml version="1.0" encoding="utf-8"?>\n{ElementTree.tostring(root, encoding="unicode")}')
    note(_counts(files))


def _github(files: _Results) -> None:
    for cases, results in files:
        for result, _ in results:
            if not result.passed:
                story = "\n".join(_story(cases, result))
                case = result.case
                show(annotation(story, file=cases.name, line=case.line, column=case.column, title=case.name))
    note(_counts(files))


_WRITERS = {Report.text: _text, Report.json: _json, Report.junit: _junit, Report.github: _github}
