"""Shared parts of all calls: request and response models, problems, preconditions, request ids."""
