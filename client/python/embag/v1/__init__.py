"""Messages of the wire, generated when the package is built: `embedding_bag_pb2` has what lookups
are made of, `model_admin_pb2` what versions are loaded and served with."""
