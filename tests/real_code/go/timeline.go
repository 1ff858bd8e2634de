package main

// The writes of the controllers as records of a Timeline, in the words of recordings (docs/timeline.md).

import (
	"encoding/json"
	"math"
	"sort"
	"strings"
	"sync"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	v1 "k8s.io/api/core/v1"
)

type record struct {
	At         float64        `json:"at"`
	Controller string         `json:"controller"`
	Action     string         `json:"action"`
	Object     map[string]any `json:"object"`
	Detail     map[string]any `json:"detail"`
}

type recorder struct {
	t0      time.Time
	mu      sync.Mutex
	records []record
}

// note takes down what no write shows: what kubectl does.
func (r *recorder) note(kind, namespace, name, action string, detail map[string]any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	at := math.Round(time.Since(r.t0).Seconds()*1000) / 1000
	r.records = append(r.records, record{at, kubectl, action, map[string]any{"kind": kind, "namespace": namespace, "name": name}, detail})
}

func (r *recorder) written(w write) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if w.agent == me || w.resource == "leases" {
		return
	}
	at := math.Round(time.Since(r.t0).Seconds()*1000) / 1000
	if at < -1 {
		return
	}
	o := w.new
	if o == nil {
		o = w.old
	}
	ref := map[string]any{"kind": kinds[w.resource].kind, "name": o.GetName()}
	if ns := o.GetNamespace(); ns != "" {
		ref["namespace"] = ns
	}
	add := func(action string, detail map[string]any) {
		r.records = append(r.records, record{at, w.agent, action, ref, detail})
	}
	switch w.resource {
	case "nodes":
		if w.verb == "delete" || w.verb == "create" {
			return
		}
		old, n := w.old.(*v1.Node), w.new.(*v1.Node)
		if w.sub == "status" {
			for _, c := range n.Status.Conditions {
				was := condition(old, string(c.Type))
				if (was == nil || was.Status != c.Status || was.Reason != c.Reason) && strings.HasPrefix(c.Reason, "NodeStatus") {
					add("SetNodeCondition", map[string]any{"type": c.Type, "status": c.Status, "reason": c.Reason})
				}
			}
			return
		}
		if w.taints {
			before, after := taintKeys(old), taintKeys(n)
			for _, t := range sorted(after) {
				if !before[t] {
					add("AddTaint", map[string]any{"key": t[0], "effect": t[1]})
				}
			}
			for _, t := range n.Spec.Taints { // recordings have no word for it: a PATCH that only stamps a taint anew, or changes its value
				for _, was := range old.Spec.Taints {
					if t.Key == was.Key && t.Effect == was.Effect && (t.Value != was.Value || !t.TimeAdded.Equal(was.TimeAdded)) {
						add("UpdateTaint", map[string]any{"key": t.Key, "effect": t.Effect})
					}
				}
			}
			for _, t := range sorted(before) {
				if !after[t] {
					add("RemoveTaint", map[string]any{"key": t[0], "effect": t[1]})
				}
			}
		}
		for _, k := range w.labelKeys {
			if v, is := n.Labels[k]; is && v != old.Labels[k] {
				add("SetNodeLabel", map[string]any{"key": k, "value": v})
			}
		}
	case "pods":
		p, _ := w.new.(*v1.Pod)
		old, _ := w.old.(*v1.Pod)
		switch {
		case w.verb == "create" && w.sub == "":
			node := p.Spec.NodeName
			if a := p.Spec.Affinity; a != nil && a.NodeAffinity != nil && a.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution != nil {
				if ts := a.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution.NodeSelectorTerms; len(ts) > 0 && len(ts[0].MatchFields) > 0 {
					node = ts[0].MatchFields[0].Values[0]
				}
			}
			owner := ""
			for _, o := range p.OwnerReferences {
				if o.Controller != nil && *o.Controller {
					owner = o.Name
				}
			}
			add("CreatePod", map[string]any{"node": node, "owner": owner, "revision": p.Labels["controller-revision-hash"]})
		case w.verb == "delete":
			d := map[string]any{}
			if w.grace != nil {
				d["gracePeriodSeconds"] = *w.grace
			}
			add("DeletePod", d)
		case w.sub == "status":
			for _, c := range p.Status.Conditions {
				var was v1.PodCondition
				for _, x := range old.Status.Conditions {
					if x.Type == c.Type {
						was = x
					}
				}
				if was.Status == c.Status && was.Reason == c.Reason {
					continue
				}
				if c.Type == v1.PodReady && c.Status == v1.ConditionFalse && w.agent == "node-lifecycle" {
					add("MarkPodNotReady", map[string]any{})
				} else if c.Type == v1.DisruptionTarget {
					add("SetPodCondition", map[string]any{"type": c.Type, "status": c.Status, "reason": c.Reason})
				}
			}
		}
	case "daemonsets":
		if w.sub == "status" {
			s := w.new.(*appsv1.DaemonSet).Status
			add("UpdateDaemonSetStatus", map[string]any{"currentNumberScheduled": s.CurrentNumberScheduled, "numberMisscheduled": s.NumberMisscheduled, "desiredNumberScheduled": s.DesiredNumberScheduled,
				"numberReady": s.NumberReady, "updatedNumberScheduled": s.UpdatedNumberScheduled, "numberAvailable": s.NumberAvailable, "numberUnavailable": s.NumberUnavailable, "observedGeneration": s.ObservedGeneration})
		}
	case "replicasets":
		if w.new == nil || w.sub != "" {
			return
		}
		from, to := int32(0), *w.new.(*appsv1.ReplicaSet).Spec.Replicas
		if w.old != nil {
			from = *w.old.(*appsv1.ReplicaSet).Spec.Replicas
		}
		if from != to {
			add("ScaleReplicaSet", map[string]any{"from": from, "to": to})
		}
	case "controllerrevisions":
		rev := o.(*appsv1.ControllerRevision).Revision
		switch w.verb {
		case "create":
			add("CreateControllerRevision", map[string]any{"revision": rev})
		case "delete":
			add("DeleteControllerRevision", map[string]any{"revision": rev})
		default:
			add("UpdateControllerRevision", map[string]any{"revision": rev})
		}
	case "events":
		if w.verb == "create" {
			e := w.new.(*v1.Event)
			ref = map[string]any{"kind": e.InvolvedObject.Kind, "name": e.InvolvedObject.Name}
			if e.InvolvedObject.Namespace != "" {
				ref["namespace"] = e.InvolvedObject.Namespace
			}
			add("RecordEvent", map[string]any{"type": e.Type, "reason": e.Reason})
		}
	}
}

func taintKeys(n *v1.Node) map[[2]string]bool {
	out := map[[2]string]bool{}
	for _, t := range n.Spec.Taints {
		out[[2]string{t.Key, string(t.Effect)}] = true
	}
	return out
}

func sorted(m map[[2]string]bool) (out [][2]string) {
	for k := range m {
		out = append(out, k)
	}
	sort.Slice(out, func(i, j int) bool { return out[i][0]+":"+out[i][1] < out[j][0]+":"+out[j][1] })
	return out
}

func (r *recorder) document(s *scenario, a *api, podNodes map[string]string, cost map[string]any) []byte {
	nodes, pods := []map[string]any{}, []map[string]any{}
	counts := map[string]int{"total": 0, "ready": 0, "notReady": 0, "terminating": 0, "unbound": 0}
	for _, k := range keysOf(a.stores["nodes"]) {
		n := a.stores["nodes"][k].obj.(*v1.Node)
		var ready any
		if c := condition(n, "Ready"); c != nil {
			ready = c.Status
		}
		taints := []string{}
		for _, t := range n.Spec.Taints {
			taints = append(taints, t.Key+":"+string(t.Effect))
		}
		sort.Strings(taints)
		nodes = append(nodes, map[string]any{"name": n.Name, "ready": ready, "taints": taints})
	}
	for _, k := range keysOf(a.stores["pods"]) {
		p := a.stores["pods"][k].obj.(*v1.Pod)
		var ready any
		for _, c := range p.Status.Conditions {
			if c.Type == v1.PodReady {
				ready = c.Status
			}
		}
		counts["total"]++
		if ready == v1.ConditionTrue {
			counts["ready"]++
		} else {
			counts["notReady"]++
		}
		if p.DeletionTimestamp != nil {
			counts["terminating"]++
		}
		if p.Spec.NodeName == "" {
			counts["unbound"]++
		}
		owner := ""
		for _, o := range p.OwnerReferences {
			if o.Controller != nil && *o.Controller {
				owner = o.Name
			}
		}
		pods = append(pods, map[string]any{"owner": owner, "namespace": p.Namespace, "name": p.Name, "node": p.Spec.NodeName, "ready": ready, "terminating": p.DeletionTimestamp != nil})
	}
	doc := map[string]any{"apiVersion": "nodelife.dev/v1alpha1", "kind": "Timeline", "metadata": map[string]any{"name": s.name, "recordedFrom": "the controllers of Kubernetes " + release + " on virtual time"},
		"profile": minor(), "flags": s.flags, "start": r.t0.UTC().Format(time.RFC3339), "duration": s.duration.Seconds(), "podNodes": podNodes, "chance": []any{}, "records": r.records,
		"final": map[string]any{"nodes": nodes, "pods": counts, "podList": pods}, "cost": cost}
	b, err := json.Marshal(doc)
	if err != nil {
		panic(err)
	}
	return b
}

func keysOf(m map[string]entry) (out []string) {
	for k := range m {
		out = append(out, k)
	}
	sort.Strings(out)
	return out
}
