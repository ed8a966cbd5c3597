"""Messages of `embag/v1/embedding_bag.proto`: lookups and what a server says about itself."""

from embag.v1.descriptors import names_of

globals().update(names_of('embag/v1/embedding_bag.proto', __name__))
