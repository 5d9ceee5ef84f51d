"""Tests of `harken serve`."""
