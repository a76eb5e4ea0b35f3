"""Programs that execute what a model wrote: kept from the machine, within limits, ended whole.

| module | job |
|---|---|
| sandbox | `Sandbox`: what a program sees and may use; runs one, and says how it ended |
| bubblewrap | how it is called here, tried once; the system calls that a program does without |
| inside | the program's parent, inside: its limits, and the end of all that it started |
"""

from .bubblewrap import find_bubblewrap
from .sandbox import HOW_TO_INSTALL, NO_LIMIT, Failure, ProgramEnd, Sandbox

__all__ = ["HOW_TO_INSTALL", "NO_LIMIT", "Failure", "ProgramEnd", "Sandbox", "find_bubblewrap"]
