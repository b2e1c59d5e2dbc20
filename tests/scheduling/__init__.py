"""Tests of penstock.scheduling."""
