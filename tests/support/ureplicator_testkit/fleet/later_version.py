"""A later version of the product: a copy of its sources with another version, which writes more.

Its nodes in ZooKeeper and the metadata of its positions have a field that this version does not know, as
those of any later version may. There is no other version yet that could be installed beside this one.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping
from pathlib import Path

from ureplicator_common._version import __version__
from ureplicator_testkit.fleet.real_fleet import with_path

VERSION = "0.99.0"
ROOT = Path(__file__).parents[4]
PACKAGES = ("common", "controller", "worker")
LATER = '''

def _later(value: Any) -> Any:
    """Objects have another field; mappings, whose keys are names or numbers, do not."""
    if isinstance(value, list):
        return [_later(part) for part in value]
    if not isinstance(value, dict):
        return value
    extended = {key: _later(each) for key, each in value.items()}
    return {**extended, "later": [1]} if value and all(map(str.isalpha, value)) else extended
'''
CODEC = "common/ureplicator_common/znodes/codec.py"
CHANGES = (
    ("common/ureplicator_common/_version.py", f'"{__version__}"', f'"{VERSION}"'),
    (
        CODEC,
        "return pack(json.dumps(value, sort_keys=True",
        "return pack(json.dumps(_later(value), sort_keys=True",
    ),
    (
        CODEC,
        "        return pack(text)\n",
        "        return encode(json.loads(text))\n",
    ),
    (
        "common/ureplicator_common/kafka/provenance.py",
        "        return json.dumps(fields,",
        "        fields = [*fields, *([None] if self.appends is None else []), 'later']\n"
        "        return json.dumps(fields,",
    ),
)


def install(folder: Path) -> Mapping[str, str]:
    """The environment of processes of the later version, which is put into the folder."""
    for name in PACKAGES:
        shutil.copytree(ROOT / name, folder / name, ignore=shutil.ignore_patterns("__pycache__"))
    for path, here, there in CHANGES:
        text = (folder / path).read_text()
        assert text.count(here) == 1, f"{path}: {here}"
        (folder / path).write_text(text.replace(here, there))
    with (folder / CODEC).open("a") as module:
        module.write(LATER)
    folders = [str(folder / name) for name in PACKAGES[:-1]]
    return {"PYTHONPATH": os.pathsep.join([*folders, with_path(folder / PACKAGES[-1])])}
