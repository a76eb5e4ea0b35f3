"""Compile stage: the deployment spec, checkpoints, exports, manifests."""

import sys
from typing import Any, cast

# OpenVINO's Python package keeps an id in the home folder and reports usage if it finds this
# module, already when it is imported. A toolkit must not do that to its users: without the module
# OpenVINO takes its own stub.
cast(Any, sys.modules).setdefault("openvino_telemetry", None)
