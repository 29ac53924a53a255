"""Opens one file and prints what nbprof says of it, as JSON.

python benchmarks/answers/run_file.py PATH
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

from answer import answer

import nbprof

if __name__ == "__main__":
    print("\n" + json.dumps(answer(nbprof.load(sys.argv[1]))))
