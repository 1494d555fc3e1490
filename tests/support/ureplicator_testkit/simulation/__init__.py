"""The whole fleet in one thread, under virtual time, with faults: a seed is a history.

What is real here: election, observer, plan, executor and control loop of the controllers
(`ControlLoop.turn`); the worker's state machine, publisher, prover and fencer; the copier's
`Ownership`, which goes through the order of taking a partition over; the operators' calls
(`Whitelist`, `Wishes`, `edit`). What is simulated: ZooKeeper (`coordination.memory`),
Kafka's transactional ids, positions and logs (`kafka`), the worker's loop, which only passes words
on, and the copier's data path: of the real one (`route`, `raw`) it keeps when partitions begin,
commit, drain and go, and moves numbered records in place of batches. Bytes, sockets and Spark have
tests of their own; here they would cost a thousand times what is asked of them.

**No threads.** Every thread of every process is an actor with turns (`kernel`). Before each
request to ZooKeeper or Kafka the world may go on without the one who asks: for a moment (a slow
thread), or until long after its session has ended (a frozen process), and only then is the request
made. Or the process ends there, between any two of its writes. Those that stand still inside each
other thaw in reverse order; that much of generality is given up.

**Judged all the time** (`judge`, `kafka`), by the letters of the project's invariants: L O K D of
records and positions, S one owner, E one leader, M no needless move, A answers to operators; after
every write of a leader the invariants that production checks (I); and when all is healed, C: it
comes to rest in bounded time, and everything is copied.

A history depends on its seed alone. Sets of texts are ordered by Python's hash, so runs fix it
(`PYTHONHASHSEED=0`). To see a seed again:

    python -m ureplicator_testkit.simulation --seed 17 --trace
"""
