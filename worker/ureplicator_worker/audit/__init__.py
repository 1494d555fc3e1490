"""Audit of a copy: an independent comparison of a source topic with its copy, on Spark.

It shares no code with the copier's data path: the copier passes batches on from its own sockets, the audit
reads single records through librdkafka. So a fault of the copier cannot hide itself.

    prepare       settings, positions and logs -> AuditRequest: the range of each partition
    job           rounds of Spark tasks, one task for each partition, results merged after each round
    task          one partition for a while: both logs side by side into the comparison
    streams       committed records of one partition in order; the only module that uses librdkafka here
    pace          portions and waits at a byte rate, pure
    core          the decision, pure: which records are missing, repeated, altered, reordered, foreign
    result        values of request and result, and their JSON
    store         result on disk: JSON, and Parquet written by Spark
    repair        missing records copied again, where no order is broken

The command runs one audit from a terminal; `ureplicator_worker.auditor` runs them as a role.

A record has no identity: offsets differ on both sides, and two records may have equal contents. The
comparison aligns two sequences, as `diff` does, and what it reports is one way to explain the target by
the source. Where several are possible (which of two equal records is missing?) any is as good.
"""
