"""Tests of one fleet: a package, so that the fleet ends with its last test."""
