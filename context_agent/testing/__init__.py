"""Helpers for tests and measurements, also for those of users. Import the module that you need."""
