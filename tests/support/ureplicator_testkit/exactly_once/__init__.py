"""Random histories of workers that deliver exactly once, over clusters in memory. One seed is one history.

Real code: each worker's holder, transactional delivery, raw lane and order of ownership. In memory: brokers
that speak Fetch and Produce over sockets (`kafka.memory_kafka`), the coordinators of both transaction
protocols (`kafka.transactions`), the leader's writes and the drivers' proofs (`copier.ledger_fleet`).

Partitions move while workers freeze, thaw and are killed. Records of the source are plain, or in transactions
that are committed, aborted or open for long. Responses are lost, connections break, leaders move. Brokers
refuse with the codes that concern transactions, or for a limit that was lowered. Requests arrive long after
their client has given them up. A worker aborts a transaction whose commit is requested
already. The coordinator ends transactions that are open for too long, its ids run out
of epochs, and the protocol of the cluster changes.

**Checked after each turn**: what a reader with read_committed gets from the target is what one gets from the
source up to the stored position, once and in order; no position goes back. **At the end**, when all faults
are healed: everything is copied, and of two workers that believed they own a partition never both committed.

With `--fenced` nothing is sent in transactions (`copier.fenced_fleet` says what is checked then). Workers
sleep for days, several are lost in a row, ends of logs are deleted, compacted or lost by an election, and
brokers and coordinators forget producers (`fenced_faults`). With `--same` offsets are those of the source,
too (`copier.same_fleet`): logs begin far from zero, and requests about them fail (`same_faults`).

    python -m ureplicator_testkit.exactly_once --seeds 2000
    python -m ureplicator_testkit.exactly_once --fenced --seeds 2000
    python -m ureplicator_testkit.exactly_once --same --seeds 2000
    python -m ureplicator_testkit.exactly_once --seed 17
    python -m ureplicator_testkit.exactly_once --mutant no-rewind     first seed that catches it
"""
