"""Rows that this environment's TorchRec quantises, in one tensor or in three: each is served bit by
bit as TorchRec's own lookup returns it."""

import os
import sys
import unittest

os.environ['EMBAG_TEST_TORCH_PYTHON'] = sys.executable    # read when the next module is imported

import test_torchrec_rows


class QuantisedRows(test_torchrec_rows.TorchRecRows):
    """The comparison of test_torchrec_rows.py."""


if __name__ == '__main__':
    unittest.main()
