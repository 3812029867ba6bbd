"""The formats that messages may have, one module each, by the names that settings use."""

from collections.abc import Callable, Mapping

from operators.language.schema import RowType
from service.formats.json_lines import JsonLines
from service.formats.messages import Format
from service.formats.native import Native

FORMATS: dict[str, Callable[[Mapping[str, RowType]], Format]] = {"vernier": Native, "json": JsonLines}
"""Format name -> its constructor from the sources of one topic."""
