"""CEL, in plain Python: the oracle for expressions (semantics.md section 4).

text -> `parse` -> tree -> `check` (names, types) -> `Program` -> `evaluate` (values, errors, unknowns, cost) -> `Outcome`.
"""

from streamer.reference.cel.check import Remark
from streamer.reference.cel.program import Outcome, Program, compile_cel, evaluate_cel
from streamer.reference.cel.values import CelReason

__all__ = ["CelReason", "Outcome", "Program", "Remark", "compile_cel", "evaluate_cel"]
