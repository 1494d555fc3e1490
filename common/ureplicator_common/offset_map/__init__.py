"""Offset map of a route: where each copied record lies on the target.

    segments   where `target = source + constant`, and translation in both directions (pure)
    chunks     segments of a partition as they are stored, and put together again (pure)
    codec      keys and values of the topic (pure)
    topic      its name and configuration
    route_maps maps of all partitions, from the batches of the topic (pure)
    writing    rows of a partition that a copier writes (pure)

A map belongs to a route. It lies on the target, beside the data, in a compacted topic that the copiers of
the route write in the transactions in which they commit positions. `kafka.map_log` reads and writes it.
"""
