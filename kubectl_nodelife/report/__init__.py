"""Results to text: tables as kubectl prints them, JSON, YAML, names. Nobody else prints.

A verb hands over an answer (`formats.Answer`), and the formatter that the user named with `-o`
makes text of it; `terminal.write` is the one way out. What is imported here at the top stays
light, because `status` through the daemon has 70 ms for everything: msgspec and yaml load only
when asked for.
"""
