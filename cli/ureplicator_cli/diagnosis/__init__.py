"""`ureplicator diagnose`: one archive for those who are to find a fault, without secrets.

secrets   which values are secrets, and a text without them: pure but for the files it reads
states    what REST, controllers and workers show
command   the options, and the archive
"""
