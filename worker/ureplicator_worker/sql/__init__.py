"""Records of a partition through a query of Spark SQL, in place of a handler (`copier.record`).

    Handlers --chunks--> host: decode --Arrow--> JVM: the query --Arrow--> host: encode --batches--> Handlers

A task of Spark has no SparkSession, and the driver's would be shared by all: a query that takes the memory
of its JVM would end every copier of the worker, and all records would pass through one process. So each slot
has a process with a session of its own, in local mode, on the machine where its records are. Fetching,
producing, positions, gaps and fencing are the lane's; the session only turns rows into rows.

A *round* is one evaluation of a query, over exact ranges of source offsets of one or more partitions
(`rounds`). The query is row by row (`query`), and each of its rows carries the number of the row that it
came from: so results are assigned to partitions and offsets, in the order of the source. Columns that the
query does not compute with do not go to the JVM.
"""
