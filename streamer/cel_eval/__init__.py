"""Which CEL programs are true? The programs compiled so far, and their errors.

- `cache`: equal expressions are compiled once.
- `errors`: errors of evaluation, counted by reason and logged at most once a minute for a subscription.
- `portable`: expressions on cel-python, for those subscriptions that ask for it.
- `registered`: functions written in Python, which those call.

The programs themselves are those of `streamer.reference.cel`.
"""

from streamer.cel_eval.cache import ProgramCache
from streamer.cel_eval.errors import CelErrors, ErrorLog, FailingSubscription
from streamer.cel_eval.registered import Functions

__all__ = ["CelErrors", "ErrorLog", "FailingSubscription", "Functions", "ProgramCache"]
