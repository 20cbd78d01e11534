"""Parquet files that are not trusted: what they declare is checked before it is read.

Parquet stores repeated values once, so a file of a few kilobytes may stand for many gigabytes.
Rows and numbers are counted in the headers of pages, and equal texts become one object.

The headers are parsed here because pyarrow ends the whole process at some that are damaged. A child
process for pyarrow would cost every read the start of an interpreter and an import of a second.
"""

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, TypeVar

from gloam._tools import files

if TYPE_CHECKING:  # imported where they are used: they take half a second
    import pyarrow as pa
    import pyarrow.parquet as pq

_T = TypeVar("_T")
ROW_BYTES = 200
"""Memory that a row takes besides its numbers: objects for its name and label, and its digest."""
_BATCH_ROWS = 8192
_BATCH_NUMBERS = 1 << 22


def is_number(kind: "pa.DataType") -> bool:
    """Whether a column of this type has a number in each row."""
    import pyarrow as pa

    return pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_boolean(kind)


@contextmanager
def opened(path: Path) -> Iterator["pq.ParquetFile"]:
    """Open a file whose columns of texts are read as dictionaries, each distinct text once."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    metadata = pq.read_metadata(path)
    kinds = (pa.types.is_string, pa.types.is_binary, pa.types.is_large_string)
    kinds += (pa.types.is_large_binary,)
    schema = metadata.schema.to_arrow_schema()
    texts = [field.name for field in schema if any(is_kind(field.type) for is_kind in kinds)]
    # Without pre_buffer, which would hold a row group, often the whole table, in memory.
    options: Any = {"buffer_size": 1 << 20, "pre_buffer": False, "read_dictionary": texts}
    options["page_checksum_verification"] = True
    with pq.ParquetFile(path, metadata=metadata, **options) as file:
        yield file


def declared(path: Path, columns: Sequence[str], limit: int) -> tuple[int, int]:
    """Return the number of rows, and of the numbers and texts in some columns.

    Both are counted in the headers of pages, because those of the file may say something else.

    Raises:
        ValueError: The headers contradict one another, or what they declare does not fit in
            ``limit`` bytes as float32.
    """
    with files.open_regular(path) as file:
        footer = _footer(file)
        groups = [_Fields(group) for group in footer.of(_ROW_GROUPS, list)]
        num_rows = sum(group.of(_GROUP_ROWS, int) for group in groups)
        if num_rows != footer.of(_FILE_ROWS, int) or num_rows < 0:
            raise ValueError("its groups have another number of rows than the file")
        num_values = 0
        for chunk in [chunk for group in groups for chunk in group.of(_CHUNKS, list)]:
            about = _Fields(_Fields(chunk).of(_ABOUT_CHUNK, dict))
            if about.of(_COLUMN, list)[:1] in [[name.encode()] for name in columns]:
                num_values += _values_in_pages(file, about, limit)
    if ROW_BYTES * num_rows + 4 * num_values > limit:
        raise ValueError(
            f"it declares {num_rows:,} rows with {num_values:,} values, more than fit in the limit "
            f"of {limit:,} bytes"
        )
    return num_rows, num_values


def batches(path: Path, columns: Sequence[str], limit: int) -> Iterator["pa.RecordBatch"]:
    """Yield some columns in batches of at most about 16 MB, after the checks of `declared`."""
    num_rows, num_values = declared(path, columns, limit)
    size = min(_BATCH_ROWS, _BATCH_NUMBERS * num_rows // max(num_values, 1))
    with opened(path) as file:
        for batch in file.iter_batches(batch_size=max(size, 1), columns=list(columns)):
            if len(batch):
                yield batch


def objects(column: "pa.Array", known: dict[Any, Any]) -> list[Any]:
    """Return texts or numbers of a column; equal ones become the first such object in ``known``."""
    import pyarrow as pa

    column.validate(full=True)  # indices of a damaged dictionary may be out of range
    if isinstance(column, pa.DictionaryArray):
        values = [known.setdefault(value, value) for value in column.dictionary.to_pylist()]
        return [None if at is None else values[at] for at in column.indices.to_pylist()]
    return column.to_pylist()


# The headers, in the compact protocol of Thrift. Numbers of fields are those of
# https://github.com/apache/parquet-format/blob/master/src/main/thrift/parquet.thrift.

_FILE_ROWS, _ROW_GROUPS = 3, 4
_CHUNKS, _GROUP_ROWS = 1, 3
_ABOUT_CHUNK = 3
_COLUMN, _NUM_VALUES, _COMPRESSED, _DATA_AT, _DICTIONARY_AT = 3, 5, 7, 9, 11
_PAGE_BYTES, _PAGE_COMPRESSED, _DATA_PAGE, _DATA_PAGE_V2 = 2, 3, 5, 8
_MAX_FOOTER_BYTES = 1 << 26
_MAX_PAGE_HEADER_BYTES = 1 << 16
_MAX_DEPTH = 32


class _Fields:
    """The fields of a struct, by number."""

    def __init__(self, content: Any):
        self._content = content if isinstance(content, dict) else {}

    def of(self, number: int, kind: type[_T]) -> _T:
        """Return a field, which has to be of a type."""
        value = self._content.get(number)
        if type(value) is not kind:
            raise ValueError("it has a header without a field that it needs")
        return value

    def get(self, number: int) -> Any:
        """Return a field, or ``None`` if it is missing."""
        return self._content.get(number)


def _footer(file: IO[bytes]) -> _Fields:
    size = file.seek(0, os.SEEK_END)
    file.seek(max(size - 8, 0))
    end = file.read(8)
    length = int.from_bytes(end[:4], "little")
    if end[4:] != b"PAR1" or length > min(size - 8, _MAX_FOOTER_BYTES):
        raise ValueError("it does not end with the header of a Parquet file")
    file.seek(size - 8 - length)
    return _Fields(_Reader(file.read(length)).struct())


def _values_in_pages(file: IO[bytes], about: _Fields, limit: int) -> int:
    """Return the number of values in the pages of a column's chunk."""
    starts = [about.of(_DATA_AT, int)]
    if type(about.get(_DICTIONARY_AT)) is int:
        starts.append(about.of(_DICTIONARY_AT, int))
    at = min(starts) if min(starts) > 0 else starts[0]
    end, total = at + about.of(_COMPRESSED, int), about.of(_NUM_VALUES, int)
    num_values = 0
    while at < end and num_values < total:
        file.seek(max(at, 0))
        reader = _Reader(file.read(_MAX_PAGE_HEADER_BYTES))
        page = _Fields(reader.struct())
        data = page.get(_DATA_PAGE) or page.get(_DATA_PAGE_V2)
        num_values += max(_Fields(data).of(1, int), 0) if data else 0
        if page.of(_PAGE_BYTES, int) > limit:
            raise ValueError(f"it declares a page of {page.of(_PAGE_BYTES, int):,} bytes")
        at += reader.position + max(page.of(_PAGE_COMPRESSED, int), 0)
    if num_values != total:
        raise ValueError(f"it declares {total:,} values and has pages with {num_values:,}")
    return num_values


class _Reader:
    """Reads structs of Thrift's compact protocol from bytes."""

    def __init__(self, content: bytes):
        self._content, self.position = content, 0

    def struct(self, depth: int = 0) -> dict[int, Any]:
        """Return the fields of a struct by number."""
        fields, number = {}, 0
        while head := self._byte():
            number = number + (head >> 4) if head >> 4 else self._integer()
            fields[number] = self._value(head & 15, depth + 1)
        return fields

    def _value(self, kind: int, depth: int, in_list: bool = False) -> Any:
        if depth > _MAX_DEPTH:
            raise ValueError("its headers are nested too deeply")
        if kind in (1, 2):  # booleans are in the type, except in lists
            return self._byte() == 1 if in_list else kind == 1
        if kind == 3:
            return self._byte()
        if kind in (4, 5, 6):
            return self._integer()
        if kind == 7:
            return self._bytes(8)
        if kind == 8:
            return self._bytes(self._varint())
        if kind in (9, 10):
            head = self._byte()
            length = head >> 4 if head >> 4 < 15 else self._varint()
            # Every item takes at least a byte, so that a wrong length ends with the bytes.
            return [self._value(head & 15, depth + 1, in_list=True) for _ in range(length)]
        if kind == 12:
            return self.struct(depth)
        raise ValueError("it has a header that is not of the Parquet format")

    def _byte(self) -> int:
        return self._bytes(1)[0]

    def _bytes(self, length: int) -> bytes:
        content = self._content[self.position : self.position + length]
        if len(content) < length:
            raise ValueError("it has a header that ends too early")
        self.position += length
        return content

    def _varint(self) -> int:
        value, shift = 0, 0
        while True:
            byte = self._byte()
            value |= (byte & 127) << shift
            shift += 7
            if byte < 128:
                return value
            if shift > 63:
                raise ValueError("it has a number of more than 64 bits in a header")

    def _integer(self) -> int:
        value = self._varint()
        return (value >> 1) ^ -(value & 1)
