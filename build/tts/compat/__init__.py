"""Features that Python 3.10 lacks, under the names of newer versions. Falls away with 3.10."""

import sys

if sys.version_info >= (3, 11):
    from enum import StrEnum as StrEnum
    from typing import Self as Self
    from typing import Unpack as Unpack
else:
    from backports.strenum import StrEnum as StrEnum
    from typing_extensions import Self as Self
    from typing_extensions import Unpack as Unpack
