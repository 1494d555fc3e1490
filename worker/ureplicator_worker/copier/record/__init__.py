"""The record lane: decoded records, through a handler."""
