"""Rows from any source, encoded, paired and padded."""

from atwu.data.collate import PairBatch, PairCollator, collate_rows
from atwu.data.encode import EncodedRow, EncodedRows, Encoder
from atwu.data.pairing import EpochSampler, PairedDataset, PairedRow, epoch_order, retain_index
from atwu.data.rows import fingerprint, parse_row
from atwu.data.schema import IGNORE_INDEX, Example, Message
from atwu.data.sources import LoadedRows, load_rows

__all__ = [
    "IGNORE_INDEX",
    "EncodedRow",
    "EncodedRows",
    "Encoder",
    "EpochSampler",
    "Example",
    "LoadedRows",
    "Message",
    "PairBatch",
    "PairCollator",
    "PairedDataset",
    "PairedRow",
    "collate_rows",
    "epoch_order",
    "fingerprint",
    "load_rows",
    "parse_row",
    "retain_index",
]
