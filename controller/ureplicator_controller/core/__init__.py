"""Pure decisions of the leader: a snapshot and a time in, a plan out."""
