"""Write or check lua/digests.json: the digest of every script by its name."""

from __future__ import annotations

import json
import sys

from generated import ROOT, settle

from sharedmem.redis.scripts import DIGESTS, build_digests

if __name__ == "__main__":
    path = ROOT / "lua" / DIGESTS
    sys.exit(settle(path, lambda: json.dumps(build_digests(), indent=0) + "\n", remedy="run make generate"))
