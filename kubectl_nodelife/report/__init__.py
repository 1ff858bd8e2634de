"""Formats results: tables as kubectl prints them, JSON, YAML, names. Nothing else prints.

A verb returns a page (`formats.Page`), and the formatter named with `-o` makes text of it;
`terminal.write` is the only way to stdout. Top-level imports stay light, because `status` through
the daemon has 70 ms in all: msgspec and yaml load only when they are needed.
"""
