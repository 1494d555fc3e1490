"""`/claims`: claims of fleets on the topics of target clusters."""
