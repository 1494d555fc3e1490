"""TLS and SASL of the connections to a cluster, for our own sockets and for librdkafka.

    settings     the cluster's properties -> what they mean; the only module that knows their names
    secret       a secret, or the file that holds it
    tls          contexts, made again when a file has changed
    scram        SCRAM (RFC 5802), pure
    mechanisms   one login by each mechanism, pure
    credentials  logins with the secrets as they are at this moment
    tokens       bearer tokens by client credentials (RFC 6749)
    login        the requests of a login, and when it is to be repeated (KIP-368), pure
    channel      a fresh socket -> one that is encrypted and authenticated

Secrets and certificates are read from their files again when these change: the next connection, and the next
login on a connection, use them. No secret is in a `repr`, a log line or an error.
"""
