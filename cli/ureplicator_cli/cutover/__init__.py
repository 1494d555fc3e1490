"""`ureplicator cutover`: clients move to the other cluster of a route, and back"""
