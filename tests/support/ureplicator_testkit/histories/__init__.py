"""Histories of tests that break things, and the one judge of them.

    Load, Trickle --> Sent, Acknowledged, Ended --+
    Reader ---------> Read, Positions ------------+--> a file of JSON lines --> check(events, promise)
    the test -------> Fault ----------------------+                              --> anomalies
    at the end -----> whole Reads, Commits -------+

A history is what clients observed, with times, in the order in which they observed it. The judge is a pure
function of it, so a history that was kept can be judged again.

It works as Elle does with lists: every record has a number of its own in its partition, and a partition is a
list that is only appended to. So the order of the appends is the order in which any reader finds them, and
each observation must fit into one order: that of the source's log. Source: Kingsbury and Alvaro, "Elle:
Inferring Isolation Anomalies from Experimental Observations" (2020); Adya's G1a is `PHANTOM` here.
"""
