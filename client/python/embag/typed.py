"""Names for type annotations that some supported versions of Python lack."""

import sys
from typing import TYPE_CHECKING, Any

__all__ = ['Unpack']

if sys.version_info >= (3, 11):
    from typing import Unpack
elif TYPE_CHECKING:
    from typing_extensions import Unpack
else:
    class Unpack:
        """Stands for keyword arguments of any types."""

        def __class_getitem__(cls, _: object) -> object:
            return Any
