"""Nodes under `/ureplicator/<fleet>`: their `paths`, and the bytes of their contents, by subject. Pure.

| node                            | kind       | content                 | written by        |
|---------------------------------|------------|-------------------------|-------------------|
| epoch                           | persistent | empty; version = epoch  | who becomes leader|
| leader                          | ephemeral  | LiveController          | the leader        |
| controllers/<id>                | ephemeral  | LiveController          | each controller   |
| workers/live/<id>               | ephemeral  | LiveWorker              | each worker       |
| workers/known/<id>              | persistent | KnownWorker             | the leader, REST  |
| workers/registered/<id>         | persistent | a session of a process  | each worker       |
| routes/<route>                  | persistent | RouteSettings           | the leader        |
| topics/<route>/<topic>          | persistent | TopicIntent             | REST, the leader  |
| targets/<cluster>/<topic>       | persistent | who claims that target  | REST, the leader  |
| blacklist/<route>/<topic>       | persistent | topic not to be copied  | REST              |
| memory/<route>                  | persistent | RouteMemory             | the leader        |
| acls/<route>                    | persistent | RouteAcls               | the leader        |
| groups/<route>                  | persistent | GoneGroups              | the leader        |
| syncs/<kind>/<route>            | persistent | SyncReport              | the leader        |
| ideal/<route>/<topic>           | persistent | IdealTopic              | the leader        |
| assignments/<worker>            | persistent | Assignment              | the leader        |
| shares/<worker>                 | persistent | SlotShares              | the leader        |
| current/<worker>                | ephemeral  | CurrentState            | the worker        |
| loads/<worker>                  | ephemeral  | PartitionLoad           | the worker        |
| settings                        | persistent | Switches                | REST, the leader  |
| history/<n>                     | persistent | a block of PastEvent    | the leader        |
| isolated                        | persistent | IsolatedSubject         | the leader        |
| audits/states/<route>/<topic>   | persistent | TopicAudit              | who compared      |
| audits/requests/<route>/<topic> | persistent | RequestedAudit          | REST, the auditor |
| audits/claims/<route>/<topic>   | ephemeral  | RunningAudit            | the auditor       |
| audits/followers/<route>        | ephemeral  | Follower                | the auditor       |
| audits/auditors/<id>            | ephemeral  | LiveAuditor             | each auditor      |

Contents are JSON with camelCase names, compressed above 8 KiB. Equal values are equal bytes (sets and
mappings are written in order), so a write that changes nothing is recognised as such. A node must stay
under 640 KiB of ZooKeeper's 1 MiB. Fields and their types are those of the dataclasses in
`znode_contents` and `audits` (`RouteSettings`: in `model`); `codec` lets pydantic encode and validate them
(docs/adr/0015). Unknown fields are ignored when read, so that two versions can share a tree during a rolling
upgrade. A content that is not of its type is refused: every decoder raises `UnreadableContent` for it and
nothing else.

The nodes that grow are bounded before they are written, since a plan whose node is refused would be
made again endlessly: a topic has at most `MAX_TOPIC_PARTITIONS`, a worker is assigned at most `MAX_ASSIGNED`.
"""
