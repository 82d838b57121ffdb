"""What a host asks its trainer's interpreter, answered without one: nothing that these benchmarks measure needs TRL."""

from __future__ import annotations

import json
import sys

VERSIONS = {"python": sys.version.split()[0], "trl": "1.16.0", "transformers": "5.17.0", "torch": "2.13.0"}

if __name__ == "__main__":
    asked = sys.argv[1:3]
    print(json.dumps(VERSIONS if asked[0] == "-c" else {"trl": VERSIONS["trl"], "defaults": {}, "fields": []}))
