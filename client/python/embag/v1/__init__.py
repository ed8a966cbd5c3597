"""Messages of the wire format, built when they are imported.

`embedding_bag_pb2` has the messages of lookups, `model_admin_pb2` those that load and serve
versions.
"""
