"""Write what is generated in docs/ from the models of the configuration: `make docs`; the tests check that it was run.

- `streamer.schema.json`, the JSON Schema for editors;
- the tables of fields in `configuration.md`, between two comments.
"""

from __future__ import annotations

import re
from pathlib import Path

from streamer.config.show import json_schema, table

DOCS = Path(__file__).resolve().parent
BEGIN, END = "<!-- fields: made by `make docs` -->\n", "<!-- end of fields -->\n"


def generated() -> dict[Path, str]:
    """Return each generated file with its text."""
    page = DOCS / "configuration.md"
    between = re.compile(re.escape(BEGIN) + ".*?" + re.escape(END), re.DOTALL)
    text, count = between.subn(lambda _: f"{BEGIN}\n{table()}\n{END}", page.read_text(encoding="utf-8"))
    if count != 1:
        raise ValueError(f"{page.name}: expected one pair of comments around the fields, found {count}")
    return {DOCS / "streamer.schema.json": json_schema(), page: text}


if __name__ == "__main__":
    for path, text in generated().items():
        path.write_text(text, encoding="utf-8")
        print(f"wrote {path.relative_to(DOCS.parent)}")
