"""A cluster out of files: what `-f` names, as one dump with its moment.

`dump_files` finds the files of a folder or an archive, within the bounds of `file_size`; `dump`
makes one cluster of what is in them, and `moment` says when it was taken.
"""
