"""Whether what a command prints with --json is a document of its type."""

import json

import msgspec

from tts.cli.documents import DOCUMENTS, ERROR
from tts.cli.json_output import plain


def document(command, printed):
    """The one document on stdout, which must be of its command's type, field by field."""
    return _fitting(DOCUMENTS[command], printed)


def error(printed):
    """The error on stdout."""
    return _fitting(ERROR, printed)["error"]


def _fitting(kind, printed):
    def refuse(constant):
        raise AssertionError(f"{constant} is no JSON")

    data = json.loads(printed, parse_constant=refuse)
    printed.encode("ascii")
    assert plain(msgspec.convert(data, kind)) == data, "a field is missing, or is not of the type"
    return data
