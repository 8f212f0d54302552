"""Helpers of the public package."""
