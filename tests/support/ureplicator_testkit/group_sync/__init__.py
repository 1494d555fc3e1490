"""Random histories of the offset map and the sync of groups: real cores over twins, crashes from a seed.

world       logs of both clusters, the position, rows of the map, and the owners that copy
history     what happens next, by chance; consumers, leaders, and the rounds of the sync
checks      what must hold at each step
mutants     safeguards that are removed
"""
