"""Tables of facts as Arrow IPC files, written and read by pyarrow."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from kbcore.errors import ConfigError, InvalidInput
from kbcore.plug.hookspecs import hookimpl
from kbcore.plug.ports import TableFormat


class ArrowTables:
    """Arrow IPC files, the file format with a footer; Feather version 2 is the same."""

    def write(
        self, path: str, columns: Sequence[str], batches: Iterable[Sequence[Sequence[str]]]
    ) -> int:
        """Write one record batch for each batch of rows."""
        pa = _package()
        fields = [(name, pa.string()) for name in columns] or [("holds", pa.bool_())]
        schema = pa.schema(fields)
        count = 0
        with pa.OSFile(path, "wb") as file, pa.ipc.new_file(file, schema) as writer:
            for rows in filter(None, batches):
                lists = [list(column) for column in zip(*rows, strict=True)] or [[True] * len(rows)]
                arrays = [
                    pa.array(values, field.type)
                    for values, field in zip(lists, schema, strict=True)
                ]
                writer.write_batch(pa.record_batch(arrays, schema=schema))
                count += len(rows)
        return count

    def read(self, path: str) -> Iterator[list[tuple[str, ...]]]:
        """Read one record batch after another, in memory that the file is mapped to."""
        pa = _package()
        try:
            reader = pa.ipc.open_file(pa.memory_map(path, "rb"))
        except pa.ArrowInvalid as error:
            raise InvalidInput(f"{path} is not an Arrow IPC file: {error}") from error
        kinds = [field.type for field in reader.schema]
        has_arguments = kinds != [pa.bool_()]
        if has_arguments:
            _check_types(pa, path, reader.schema)
        for number in range(reader.num_record_batches):
            batch = reader.get_batch(number)
            if not has_arguments:
                yield [()] * batch.num_rows
                continue
            if any(column.null_count for column in batch.columns):
                raise InvalidInput(f"{path}: rows with null; a fact has a value in every column")
            columns = [column.cast(pa.string()).to_pylist() for column in batch.columns]
            yield list(zip(*columns, strict=True))


def _check_types(pa: Any, path: str, schema: Any) -> None:
    for index, field in enumerate(schema, 1):
        kind = field.type.value_type if pa.types.is_dictionary(field.type) else field.type
        if not (
            pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_integer(kind)
        ):
            raise InvalidInput(
                f"{path}: column {index} ({field.name}) has the type {field.type}; write it as "
                "text or as integers"
            )


def _package() -> Any:
    try:
        import pyarrow as pa
    except ImportError as error:
        raise ConfigError("Arrow files need the package pyarrow: pip install pyarrow") from error
    return pa


@hookimpl
def kb_table_formats() -> Mapping[str, TableFormat]:
    """Offer `arrow`."""
    return {"arrow": ArrowTables()}
