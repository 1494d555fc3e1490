"""Commands about audits."""
