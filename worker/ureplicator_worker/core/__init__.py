"""Pure decisions of a worker: a state and an event in, instructions out."""
