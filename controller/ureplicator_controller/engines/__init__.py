"""What performs the leader's decisions and brings it the facts."""
