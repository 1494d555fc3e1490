"""Random histories of whole cutovers: the real thread of the leader over twins. One seed is one history.

logs        records of a cluster, and transactions of its clients
clusters    both clusters: logs, access rights that brokers have late, groups, a gateway
copying     the fleet: the real plan and state machine of workers, that copy exactly once by fences and counts
clients     writers that obey access rights or do not, and groups that read
twins       what the leader's thread sees of the clusters; each request may fail, or be the last one
leaders     leaders that die or freeze at any request, and go on with what they knew
operators   runs there and back, aborts, rights and topics that change meanwhile
judge       what must hold at each write of the cutover's node, at each turn, and at the end
announcements   what clients are told
faults      what fails, by chance
history     what happens next, by chance
mutants     safeguards that are removed

A leader freezes before a read, before or after a write to ZooKeeper, or after a change at a cluster: not
between its proof that it leads and the change that follows. Nothing at the clusters is fenced by the leader's
epoch.

    python -m ureplicator_testkit.cutover_histories --seed 17
"""
