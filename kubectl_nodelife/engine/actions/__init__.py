"""Decisions: values that say why, know their effect on an object, and are written as records.

`action` has what all share, and the decisions that change no object; `objects` the calls that
Kubernetes' controllers make on objects, `upgrades` those of our upgrades. All are imported from
here. `identity` has the key by which another process knows an action, and actions as JSON, for a
journal.
"""

from __future__ import annotations

from kubectl_nodelife.engine.actions.action import Action as Action
from kubectl_nodelife.engine.actions.action import ActionNumbers as ActionNumbers
from kubectl_nodelife.engine.actions.action import AfterWrites as AfterWrites
from kubectl_nodelife.engine.actions.action import CancelEviction as CancelEviction
from kubectl_nodelife.engine.actions.action import Detail as Detail
from kubectl_nodelife.engine.actions.action import NodeAction as NodeAction
from kubectl_nodelife.engine.actions.action import ObjectAction as ObjectAction
from kubectl_nodelife.engine.actions.action import OriginFields as OriginFields
from kubectl_nodelife.engine.actions.action import PodAction as PodAction
from kubectl_nodelife.engine.actions.action import QueueNode as QueueNode
from kubectl_nodelife.engine.actions.action import ReadLeases as ReadLeases
from kubectl_nodelife.engine.actions.action import RecordEvent as RecordEvent
from kubectl_nodelife.engine.actions.action import Requeue as Requeue
from kubectl_nodelife.engine.actions.action import ScheduleEviction as ScheduleEviction
from kubectl_nodelife.engine.actions.action import SetZoneState as SetZoneState
from kubectl_nodelife.engine.actions.action import UnqueueNode as UnqueueNode
from kubectl_nodelife.engine.actions.action import camel_case as camel_case
from kubectl_nodelife.engine.actions.action import created_object as created_object
from kubectl_nodelife.engine.actions.action import created_pod as created_pod
from kubectl_nodelife.engine.actions.action import created_uid as created_uid
from kubectl_nodelife.engine.actions.action import of_node as of_node
from kubectl_nodelife.engine.actions.action import of_object as of_object
from kubectl_nodelife.engine.actions.action import of_pod as of_pod
from kubectl_nodelife.engine.actions.objects import EVICTION_MESSAGE as EVICTION_MESSAGE
from kubectl_nodelife.engine.actions.objects import STATUS_COUNTS as STATUS_COUNTS
from kubectl_nodelife.engine.actions.objects import AddTaints as AddTaints
from kubectl_nodelife.engine.actions.objects import AdoptObject as AdoptObject
from kubectl_nodelife.engine.actions.objects import (
    CreateControllerRevision as CreateControllerRevision,
)
from kubectl_nodelife.engine.actions.objects import CreatePod as CreatePod
from kubectl_nodelife.engine.actions.objects import (
    DeleteControllerRevision as DeleteControllerRevision,
)
from kubectl_nodelife.engine.actions.objects import DeletePod as DeletePod
from kubectl_nodelife.engine.actions.objects import EvictPod as EvictPod
from kubectl_nodelife.engine.actions.objects import MarkPodNotReady as MarkPodNotReady
from kubectl_nodelife.engine.actions.objects import RaiseCollisionCount as RaiseCollisionCount
from kubectl_nodelife.engine.actions.objects import ReleaseObject as ReleaseObject
from kubectl_nodelife.engine.actions.objects import RemoveTaints as RemoveTaints
from kubectl_nodelife.engine.actions.objects import RollBackDaemonSet as RollBackDaemonSet
from kubectl_nodelife.engine.actions.objects import SetNodeConditions as SetNodeConditions
from kubectl_nodelife.engine.actions.objects import SetNodeLabels as SetNodeLabels
from kubectl_nodelife.engine.actions.objects import SetPodCondition as SetPodCondition
from kubectl_nodelife.engine.actions.objects import SetPodLabel as SetPodLabel
from kubectl_nodelife.engine.actions.objects import SetPodPhase as SetPodPhase
from kubectl_nodelife.engine.actions.objects import SetPodReady as SetPodReady
from kubectl_nodelife.engine.actions.objects import SetPodReason as SetPodReason
from kubectl_nodelife.engine.actions.objects import SetUnschedulable as SetUnschedulable
from kubectl_nodelife.engine.actions.objects import (
    UpdateControllerRevision as UpdateControllerRevision,
)
from kubectl_nodelife.engine.actions.objects import UpdateDaemonSetStatus as UpdateDaemonSetStatus
from kubectl_nodelife.engine.actions.objects import taint_detail as taint_detail
from kubectl_nodelife.engine.actions.objects import with_label as with_label
from kubectl_nodelife.engine.actions.upgrades import CLAIM_NODE as CLAIM_NODE
from kubectl_nodelife.engine.actions.upgrades import Changes as Changes
from kubectl_nodelife.engine.actions.upgrades import CreateForNode as CreateForNode
from kubectl_nodelife.engine.actions.upgrades import DeleteForNode as DeleteForNode
from kubectl_nodelife.engine.actions.upgrades import FailWithoutMark as FailWithoutMark
from kubectl_nodelife.engine.actions.upgrades import ForNode as ForNode
from kubectl_nodelife.engine.actions.upgrades import NodeMarkPatch as NodeMarkPatch
from kubectl_nodelife.engine.actions.upgrades import SetGate as SetGate
from kubectl_nodelife.engine.actions.upgrades import StartWork as StartWork
from kubectl_nodelife.engine.actions.upgrades import StopWork as StopWork
from kubectl_nodelife.engine.actions.upgrades import UpdateRun as UpdateRun
from kubectl_nodelife.engine.actions.upgrades import WorkDone as WorkDone
