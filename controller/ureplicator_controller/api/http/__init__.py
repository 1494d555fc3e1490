"""What all calls share: models of requests and responses, problems, preconditions, request ids."""
