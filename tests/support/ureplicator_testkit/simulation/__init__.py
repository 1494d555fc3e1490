"""Simulation of a whole fleet in one thread, under virtual time, with faults. One seed is one run.

Real code: election, observer, plan, executor and control loop of the controllers; the worker's state
machine, publisher, prover and fencer; the copier's `Ownership`, which takes partitions over; the
operators' calls (`TopicService`, worker and switch services, `edit`). Simulated: ZooKeeper
(`control.memory_coordination`), Kafka's transactional ids, positions and logs (`kafka`), the worker's loop,
which only passes messages on, and the copier's data path: of the real one (`route_copier`, `raw`) it
keeps when partitions begin, commit, drain and are released, and it moves numbered records in place
of batches. Bytes, sockets and Spark have tests of their own.

**No threads.** Every thread of every process is an actor that the kernel schedules (`kernel`).
Before each request to ZooKeeper or Kafka the simulation may continue without the requesting thread:
for a moment (a slow thread), or until long after its session has expired (a frozen process); only
then is the request sent. Or the process dies there, between any two of its writes. Nested pauses end
in reverse order, a limitation that is accepted.

**Checked at every step** (`judge`, `kafka`), with the letters of the project's invariants: L O K D
of records and positions, S one owner, E one leader, M no needless move, A responses to operators;
after every write of a leader the invariants that production checks (I); and after all faults are
healed, C: the fleet settles within a bounded time and everything is copied.

A run depends on its seed alone. The order of string sets depends on Python's hash seed, so runs fix
it (`PYTHONHASHSEED=0`). To repeat a seed:

    python -m ureplicator_testkit.simulation --seed 17 --trace
"""
