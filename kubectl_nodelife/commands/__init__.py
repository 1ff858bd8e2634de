"""One file for each verb: parse, plug together, call, report.

A verb is a click command in a module of its own, named in `cli.VERBS` together with its line of
help, so that nothing here is imported before it is called. A command returns nothing, or its exit
code.
"""
