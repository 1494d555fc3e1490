"""Takeover of a partition whose former owner may have sent more than its position says: fence, and count."""
