"""The live page: `host` opens and closes it, `endpoint` serves it on loopback, and `live_feed`
makes what it shows and gives that to all listeners.

`endpoint` says which requests are answered at all, and by which token and header. The files of the
page are in `page/`; they are served as they are.
"""
