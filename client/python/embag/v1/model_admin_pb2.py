"""Messages of `embag/v1/model_admin.proto`: load, serve and unload versions of models."""

from embag.v1.descriptors import names_of

globals().update(names_of('embag/v1/model_admin.proto', __name__))
