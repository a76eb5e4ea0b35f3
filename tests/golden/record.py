"""Write what the golden tests expect anew: python -m tests.golden.record [CASE...]

Only where a change of what the product derives is wanted; read the difference before you commit it.
"""

import sys
import tempfile
from pathlib import Path

from tests.golden.cases import cases
from tests.golden.folders import EXPECTED, plain, written


def main() -> None:
    """Record the named cases, or all."""
    known = cases()
    named = sys.argv[1:] or known
    for name in named:
        with tempfile.TemporaryDirectory() as folder:
            where = Path(folder).resolve()
            found = plain(known[name](where), where)
        file = EXPECTED / f"{name}.json"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(written(found))
        print(name)
    if not sys.argv[1:]:
        for file in EXPECTED.rglob("*.json"):
            if str(file.relative_to(EXPECTED).with_suffix("")) not in known:
                file.unlink()


if __name__ == "__main__":
    main()
