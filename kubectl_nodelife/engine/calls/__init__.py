"""Each action as calls to the API server: a conversation without I/O.

`call.py` has the calls, their preconditions, their answers and steps of several calls;
`conversations.py` says which action is carried out by which conversation, and holds them but for
those about pods (`pod_calls.py`). What `changes` shows, what `repair` prints, what tests play
against the sandbox and what a live executor sends come from here, so that they cannot differ.
"""

from kubectl_nodelife.engine.calls.call import Answer as Answer
from kubectl_nodelife.engine.calls.call import Call as Call
from kubectl_nodelife.engine.calls.call import Conversation as Conversation
from kubectl_nodelife.engine.calls.call import Delete as Delete
from kubectl_nodelife.engine.calls.call import Evict as Evict
from kubectl_nodelife.engine.calls.call import Get as Get
from kubectl_nodelife.engine.calls.call import ListObjects as ListObjects
from kubectl_nodelife.engine.calls.call import Patch as Patch
from kubectl_nodelife.engine.calls.call import Post as Post
from kubectl_nodelife.engine.calls.call import Read as Read
from kubectl_nodelife.engine.calls.call import Replace as Replace
from kubectl_nodelife.engine.calls.call import Request as Request
from kubectl_nodelife.engine.calls.call import Result as Result
from kubectl_nodelife.engine.calls.call import WaitUntil as WaitUntil
from kubectl_nodelife.engine.calls.call import Write as Write
from kubectl_nodelife.engine.calls.call import request_of_call as request_of_call
from kubectl_nodelife.engine.calls.conversations import CONVERSATIONS as CONVERSATIONS
from kubectl_nodelife.engine.calls.conversations import converse as converse
from kubectl_nodelife.engine.calls.conversations import drive as drive
from kubectl_nodelife.engine.calls.conversations import request_of as request_of
