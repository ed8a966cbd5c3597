"""Imports trained embedding tables into a model repository."""

from embag.importer.plan import Choices
from embag.importer.readers import open_source
from embag.importer.source import Checkpoint, CheckpointError, Feature, Table, Tensor
from embag.importer.writer import Imported, import_checkpoint

__all__ = ['Checkpoint', 'CheckpointError', 'Choices', 'Feature', 'Imported', 'Table', 'Tensor',
           'import_checkpoint', 'open_source']
