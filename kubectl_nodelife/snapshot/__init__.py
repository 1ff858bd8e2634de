"""A snapshot: a dump that gives the same answers later, and keeps its secrets to itself.

`reading` lists a cluster page by page, `redact` says what is kept of each document, and `file`
writes the List as it comes, so that no cluster is ever held in memory as a whole.
"""
