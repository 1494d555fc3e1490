"""Models of requests and responses, by subject. The document at /openapi.json is generated from them.

requests     queries, paths, headers and bodies of all calls but those of export, import, limits and positions
responses    what all responses have in common: problems, statuses, validation in tests
others       one module for each subject
"""
