"""Tests of one fleet that syncs consumer groups: a package, so that the fleet ends with its last test."""
