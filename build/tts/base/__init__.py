"""What every package uses: errors, files, worker processes.

| module | job |
|---|---|
| worker_process | a process with limits: the parent's handle, and what runs inside |
| owner | what only the process that opened it may use, and no fork of it |
| machine_limits | the cores and the memory that this process may use |
| shown_text | what a terminal shows |
| user_paths | what is at a path that a user names; private folders; marks of what was checked |
| extras | how what is missing of an extra is installed |
| choices | names among which options choose, to be imported in no time |
| errors | every error that a user may see |
| paths, input_files, yaml_text | where files are; reading what strangers wrote |
| findings | what a check reports |
"""

import sys
from typing import Any, cast

# OpenVINO's Python package keeps an id in the home folder and reports usage if it finds this
# module, already when it is imported. A toolkit must not do that to its users: without the module
# OpenVINO takes its own stub.
cast(Any, sys.modules).setdefault("openvino_telemetry", None)
