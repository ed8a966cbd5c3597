"""Messages of the wire format, generated when the package is built.

`embedding_bag_pb2` has the messages of lookups, `model_admin_pb2` those that load and serve
versions.
"""
