"""The description of the API is of the API."""

import json
import re

from tts.gateway import app
from tts.gateway.openapi import document


def test_every_reference_of_the_document_leads_somewhere():
    text = document().decode()
    schemas = json.loads(text)["components"]["schemas"]
    references = re.findall(r'"#/components/schemas/([^"]+)"', text)
    assert references
    assert set(references) <= schemas.keys()


def test_every_path_of_the_document_is_served_by_its_method():
    routes = app.App(None)._routes
    for path, operations in json.loads(document())["paths"].items():
        route = app.MODEL if path.startswith(app.MODEL) else path
        (method,) = operations
        assert routes[route][0] == method.upper()
        assert (operations[method].get("security") == []) == (path in ("/health", "/ready"))
