"""A snapshot: a dump that gives the same answers later, and keeps its secrets to itself.

`annotations` and `flags` are the two tables of what is kept because a decision reads it; `redact`
is the pure rule for one document; `reading` lists a cluster page by page, and `file` writes the
List as it comes, so that no cluster is ever held in memory as a whole.
"""
