"""A replacement for TorchRec's collections whose tables are in a server."""
