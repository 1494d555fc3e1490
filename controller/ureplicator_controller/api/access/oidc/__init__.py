"""Bearer tokens of an identity provider (OpenID Connect), judged by the keys that it publishes."""
