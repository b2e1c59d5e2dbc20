"""Engines that Penstock knows. Found by the entry point `penstock.engines`."""
