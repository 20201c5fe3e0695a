"""JSON Schemas of request bodies."""

from __future__ import annotations

import pytest
from marshmallow import Schema

import kbserver.routes  # noqa: F401 - every schema has its name
from kbserver.schemas import jsonschema
from kbserver.schemas.base import envelope_of
from kbserver.schemas.facts import many_facts
from kbserver.schemas.fields import Read, taken


def test_a_standalone_schema_has_all_its_definitions():
    found = jsonschema.standalone(envelope_of(many_facts).ref)
    assert found["$ref"] == "#/$defs/Bulk"
    assert found["$defs"]["Bulk"]["properties"]["facts"]["items"] == {"$ref": "#/$defs/Fact"}
    assert {"Bulk", "Fact", "Instant"} <= found["$defs"].keys()


@pytest.mark.parametrize("name", sorted(jsonschema.COMPONENTS))
def test_every_named_schema_can_be_built(name):
    made = jsonschema.COMPONENTS[name]()
    assert set(jsonschema.references(made)) <= jsonschema.COMPONENTS.keys()


def test_optional_keys_accept_null():
    body = envelope_of(many_facts).json_schema()
    assert body["required"] == ["facts"]
    assert body["properties"]["facts"]["type"] == "array"
    assert "null" in body["properties"]["conflictStrategy"]["type"]


def test_a_reader_without_a_schema_is_reported():
    def silent(value):
        return value

    with pytest.raises(LookupError, match="silent"):
        taken(silent)
    with pytest.raises(LookupError, match="silent"):
        jsonschema.of_body(Schema.from_dict({"x": Read(silent)}, name="Silent")())


def test_two_schemas_never_share_a_name():
    with pytest.raises(ValueError, match="Tell"):
        jsonschema.named("Tell", jsonschema.TEXT)
