"""The version of this distribution."""

from typing import Final

VERSION: Final = "0.1.0"
