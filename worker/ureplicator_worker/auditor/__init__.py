"""The role `auditor`: carries out audits that REST requests, and follows behind the copy of routes.

    nodes        what auditors read and write in ZooKeeper
    outcome      results of a comparison as contents of nodes, pure
    sampling     which ranges to compare behind the copy within a byte rate, pure
    requests     one requested audit after the other, claimed by an ephemeral node
    failures     when what failed is tried again, pure
    heartbeats   threads that make no progress
    following    one pass over the topics of a route after the other
    session      the Spark session
    cores        how requests and routes share its cores
    daemon       the process

Several auditors share the requests: a claim is an ephemeral node, so the request of one that died is free
again and another one begins it again from its first record. Results are facts, merged into the topic's
state by a versioned write; an auditor that was frozen and writes late adds a fact that is still true.
"""
