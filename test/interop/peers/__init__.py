"""Peers of the public protocol for the interop tests, and what starts and watches them."""
