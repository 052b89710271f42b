"""The schema rows agree with the classes they fill, and with themselves."""

from dataclasses import fields

import pytest

from refsim.formats.flatbuffer.schema import SCALARS
from refsim.formats.pte.schema import PROGRAM
from refsim.formats.vkgraph.schema import VKGRAPH

ROWS = [
    pytest.param(schema, name, id=f"{schema.identifier.decode()}-{name}")
    for schema in (VKGRAPH, PROGRAM)
    for name in schema.tables
]


@pytest.mark.parametrize(("schema", "name"), ROWS)
def test_rows_name_the_fields_of_their_class(schema, name):
    rows = schema.tables[name]
    if rows.cls is None:
        assert len(rows.fields) == 1
    else:
        assert {row.name for row in rows.fields} == {field.name for field in fields(rows.cls)}


@pytest.mark.parametrize(("schema", "name"), ROWS)
def test_slots_are_distinct_and_types_exist(schema, name):
    taken = []
    for row in schema.tables[name].fields:
        taken.append(row.slot)
        if row.type in schema.unions:
            taken.append(row.slot - 1)
        element = row.type.strip("[]")
        assert (
            element in SCALARS
            or element in schema.tables
            or row.type in schema.unions
            or row.type
            in (
                "string",
                "bytes",
            )
        )
        assert (row.default is not None) == (row.type in SCALARS)
    assert len(set(taken)) == len(taken)
    assert min(taken, default=0) >= 0


@pytest.mark.parametrize("schema", [VKGRAPH, PROGRAM], ids=["VK00", "ET12"])
def test_every_union_member_is_a_table_of_its_own_class(schema):
    for members in schema.unions.values():
        classes = [schema.tables[name].cls for name in members]
        assert None not in classes
        assert len(set(classes)) == len(classes)
