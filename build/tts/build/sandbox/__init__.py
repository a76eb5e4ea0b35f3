"""Programs that execute what a model wrote: kept from the machine, within limits, ended whole.

| module | job |
|---|---|
| sandbox | `Sandbox`: what a program sees and may use; runs one, and says how it ended |
| bubblewrap | how it is called here, tried once |
| inside | the program's parent, inside: its limits, and the end of all that it started |
| system_calls | the system calls that it does without |
"""

from .bubblewrap import find_bubblewrap
from .sandbox import HOW_TO_INSTALL, NO_LIMIT, Failure, ProgramEnd, Sandbox

__all__ = ["HOW_TO_INSTALL", "NO_LIMIT", "Failure", "ProgramEnd", "Sandbox", "find_bubblewrap"]
