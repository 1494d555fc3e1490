"""Exit code 0 if one controller leads and no partition differs from its ideal state."""

import json
import os
import sys
import urllib.request


def get(path: str) -> dict:
    token = os.environ.get("TOKEN")
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    request = urllib.request.Request(os.environ["UREPLICATOR_URL"] + path, headers=headers)  # noqa: S310
    with urllib.request.urlopen(request, timeout=10) as response:  # noqa: S310
        return json.load(response)


leader = get("/ready")["leader"]
mismatches = get("/validation")["mismatches"]
print("leader:", leader or "none")
print("mismatches:", json.dumps(mismatches))
sys.exit(0 if leader and not mismatches else 1)
