"""What a program in SQL says of how its tables are fed: CREATE TABLE … WITH (topic = …, format = …), as settings."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any


def table_settings(program: Path, known: Mapping[str, str]) -> dict[str, Any]:
    """Settings by dotted key for the tables of a program in SQL; none for another program, or a file that is not
    there. known: keys that the settings have already, which take precedence. Raises ProgramError."""
    if program.suffix.lower() != ".sql" or not program.is_file():
        return {}
    # The engine takes tenths of a second to import, and a program in Python starts without this.
    from vernier.operators.language.collection.sql import MARK
    from vernier.operators.sql.statements import CreateTable, Source, read_statements

    text = program.read_text("utf-8").partition(MARK)[0]
    found: dict[str, Any] = {}
    for one in read_statements(Source(text, str(program))):
        if isinstance(one, CreateTable):
            for option, value in one.options.items():
                if option == "retain":  # of the program, not of the settings
                    continue
                parts = [part.strip() for part in value.split(",")]
                found[f"sources.{one.name}.{option}"] = parts if option == "key" else value
    return {key: value for key, value in found.items() if key not in known}
