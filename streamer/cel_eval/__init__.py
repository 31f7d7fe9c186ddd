"""CEL: compile and evaluate expressions (semantics.md section 4).

text -> `parse` -> tree -> `check` (names, types) -> `Program` -> `evaluate` (values, errors, unknowns, cost) -> `Outcome`.

- `cache`: equal expressions are compiled once.
- `errors`: errors of evaluation, counted by reason and logged at most once a minute for a subscription.
- `portable`: expressions that cel-python evaluates, for subscriptions that select it.
- `registered`: Python functions, which these expressions can call.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from streamer.cel_eval.cache import ProgramCache
from streamer.cel_eval.errors import CelErrors, ErrorLog, FailingSubscription
from streamer.cel_eval.registered import Functions
from streamer.cel_eval.values import CelReason
from streamer.late import late

if TYPE_CHECKING:
    from streamer.cel_eval.check import Remark
    from streamer.cel_eval.program import Outcome, Program, compile_cel, constant_verdict, evaluate_cel

__all__ = [
    "CelErrors",
    "CelReason",
    "ErrorLog",
    "FailingSubscription",
    "Functions",
    "Outcome",
    "Program",
    "ProgramCache",
    "Remark",
    "compile_cel",
    "constant_verdict",
    "evaluate_cel",
]

# The native core has an evaluator of its own.
__getattr__ = late(
    __name__,
    {"Remark": "check", **dict.fromkeys(("Outcome", "Program", "compile_cel", "constant_verdict", "evaluate_cel"), "program")},
)
