"""The comparison of an audit: pure, in bounded memory."""
