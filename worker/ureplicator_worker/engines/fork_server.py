"""Process that Spark forks copiers from, with their modules loaded already (`spark.python.daemon.module`).

Each copier would load them anew: half a second of a core, and 20 MB that nobody shares. None of them
may start a thread while it is loaded, since threads do not survive a fork.
"""

from __future__ import annotations

import gc

from pyspark.daemon import manager

from ureplicator_worker.engines.spark_entry import COPIER, load

if __name__ == "__main__":
    load(COPIER)
    gc.freeze()  # else a collection in a copier would write to each page that it shares
    manager()
