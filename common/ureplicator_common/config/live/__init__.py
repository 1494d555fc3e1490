"""Settings of a route that operators change while the fleet runs, in place of those of the file.

    changes   {"delivery": "exactly_once", "auto_whitelist": {"include": ["orders-.*"]}}

They are stored once for the whole fleet, so they count whichever controller leads, and whatever its file
says. A section (`naming`, `auto_whitelist`, `workers`) keeps the fields that the changes do not name. What
names code to run on the workers (`handlers`, `sql`), and what a process opens at its start (clusters, syncs),
is in the file only.
"""
