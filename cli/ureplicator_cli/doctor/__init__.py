"""`ureplicator doctor`: what will not work, and why, before the first start.

host, readings   read: this machine, ZooKeeper, the clusters
findings         what that means: pure
command          the options, and the lines
"""
