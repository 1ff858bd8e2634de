package main

// The kubelets around the controllers; how they behave is written in docs/scenario.md.

import (
	"sort"
	"sync"
	"time"

	coordv1 "k8s.io/api/coordination/v1"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

const me = "cluster"

var healthy = []struct{ kind, status, reason string }{
	{"Ready", "True", "KubeletReady"}, {"MemoryPressure", "False", "KubeletHasSufficientMemory"},
	{"DiskPressure", "False", "KubeletHasNoDiskPressure"}, {"PIDPressure", "False", "KubeletHasSufficientPID"}}
var troubled = map[string]string{"Ready/False": "KubeletNotReady", "MemoryPressure/True": "KubeletHasInsufficientMemory",
	"DiskPressure/True": "KubeletHasDiskPressure", "PIDPressure/True": "KubeletHasInsufficientPID"}

func reasonOf(kind, status string) string {
	for _, h := range healthy {
		if h.kind == kind && h.status == status {
			return h.reason
		}
	}
	if r, ok := troubled[kind+"/"+status]; ok {
		return r
	}
	return kind + "Is" + status
}

type seen struct{ status, reason, message string }

type kubelet struct {
	name  string
	alive bool
	life  int // counts starts and stops
	order []string
	conds map[string]seen
	next  time.Time // of the next status post
}

type ending struct {
	uid types.UID
	at  time.Time
}

type world struct {
	a        *api
	s        *scenario
	mu       sync.Mutex
	kubelets map[string]*kubelet
	endings  map[string]ending
	starting map[string]types.UID
	nodesNew chan struct{} // closed at the next change of a node
	gc       bool
	rec      *recorder
}

func newWorld(a *api, s *scenario, gc bool) *world {
	return &world{a: a, s: s, kubelets: map[string]*kubelet{}, endings: map[string]ending{}, starting: map[string]types.UID{}, nodesNew: make(chan struct{}), gc: gc}
}

func condition(n *v1.Node, kind string) *v1.NodeCondition {
	for i := range n.Status.Conditions {
		if string(n.Status.Conditions[i].Type) == kind {
			return &n.Status.Conditions[i]
		}
	}
	return nil
}

func ownConditions(n *v1.Node) (order []string, own map[string]seen) {
	own = map[string]seen{}
	ready := condition(n, "Ready")
	for _, h := range healthy {
		c := condition(n, h.kind)
		silent := c != nil && (c.Reason == "NodeStatusUnknown" || c.Reason == "NodeStatusNeverUpdated")
		if c != nil && !silent {
			own[h.kind] = seen{string(c.Status), c.Reason, c.Message}
		} else if c != nil || ready == nil {
			own[h.kind] = seen{h.status, h.reason, ""}
		} else {
			continue
		}
		order = append(order, h.kind)
	}
	return order, own
}

func isReady(n *v1.Node) bool {
	c := condition(n, "Ready")
	return c != nil && c.Status == v1.ConditionTrue
}

func (w *world) kubelet(name string) *kubelet { // the lock is held
	k := w.kubelets[name]
	if k == nil {
		k = &kubelet{name: name, conds: map[string]seen{}}
		k.order, k.conds = ownConditions(&v1.Node{})
		w.kubelets[name] = k
	}
	return k
}

func (w *world) alive(name string) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	k := w.kubelets[name]
	return k != nil && k.alive
}

// comes waits for an instant of a kubelet's own: at one instant the scenario's events come first.
func comes(at time.Time) { time.Sleep(time.Until(at) + time.Nanosecond) }

func stamp() metav1.Time { return metav1.Time{Time: time.Now().Truncate(time.Second)} }

// begin makes the kubelets of the first nodes; those of Ready ones renew once now, and at t0 plus the phase on the grid.
func (w *world) begin(t0 time.Time) {
	w.a.mu.Lock()
	var nodes []*v1.Node
	var pods []*v1.Pod
	for _, e := range w.a.stores["nodes"] {
		nodes = append(nodes, e.obj.(*v1.Node))
	}
	for _, e := range w.a.stores["pods"] {
		if p := e.obj.(*v1.Pod); p.DeletionTimestamp != nil {
			pods = append(pods, p)
		}
	}
	w.a.onWrite = append(w.a.onWrite, w.written)
	w.a.mu.Unlock()
	sort.Slice(nodes, func(i, j int) bool { return nodes[i].Name < nodes[j].Name })
	for _, n := range nodes {
		w.mu.Lock()
		k := &kubelet{name: n.Name}
		k.order, k.conds = ownConditions(n)
		w.kubelets[n.Name] = k
		if isReady(n) {
			k.alive = true
			k.life++
			go w.beat(k, k.life, t0.Add(w.s.phase), true)
		}
		w.mu.Unlock()
		if isReady(n) {
			w.renew(n.Name)
		}
	}
	for _, p := range pods {
		w.end(p, p.DeletionTimestamp.Add(-time.Second*time.Duration(*p.DeletionGracePeriodSeconds)))
	}
}

// beat renews and posts on a fixed grid, until the kubelet stops or starts anew. Posts come a report interval after the last one.
func (w *world) beat(k *kubelet, life int, first time.Time, post bool) {
	if time.Until(first) > 0 {
		comes(first)
	}
	due := first
	for {
		w.mu.Lock()
		if !k.alive || k.life != life {
			w.mu.Unlock()
			return
		}
		now := time.Now()
		doPost := post || !now.Before(k.next)
		if doPost {
			k.next = now.Add(w.s.report)
		}
		next := k.next
		w.mu.Unlock()
		if !now.Before(due) {
			w.renew(k.name)
			due = due.Add(w.s.renewEvery)
		}
		if doPost {
			w.post(k)
		}
		post = false
		if due.Before(next) {
			next = due
		}
		comes(next)
	}
}

// leases is the namespace of the Leases of nodes.
const leases = "kube-node-lease"

func (w *world) renew(name string) {
	ns := leases
	now := metav1.NewMicroTime(time.Now())
	w.a.mu.Lock()
	_, is := w.a.get("leases", ns, name)
	w.a.mu.Unlock()
	dur := int32(4 * w.s.renewEvery / time.Second) // a kubelet renews every quarter of it
	spec := coordv1.LeaseSpec{HolderIdentity: &name, LeaseDurationSeconds: &dur, RenewTime: &now}
	if !is {
		w.a.create(me, "leases", &coordv1.Lease{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: ns}, Spec: spec}, false)
		return
	}
	w.a.change(me, "patch", "leases", ns, name, "", write{}, func(old entry) (metav1.Object, *apiError) {
		l := old.obj.(*coordv1.Lease).DeepCopy()
		l.Spec = spec
		return l, nil
	})
}

// post writes the kubelet's conditions over those of its Node, if there is one.
func (w *world) post(k *kubelet) {
	w.mu.Lock()
	order := append([]string(nil), k.order...)
	conds := map[string]seen{}
	for t, c := range k.conds {
		conds[t] = c
	}
	w.mu.Unlock()
	now := stamp()
	w.a.change(me, "patch", "nodes", "", k.name, "status", write{}, func(old entry) (metav1.Object, *apiError) {
		n := old.obj.(*v1.Node).DeepCopy()
		for _, t := range order {
			c, had := conds[t], condition(n, t)
			if had == nil {
				n.Status.Conditions = append(n.Status.Conditions, v1.NodeCondition{Type: v1.NodeConditionType(t), Status: v1.ConditionStatus(c.status), Reason: c.reason, Message: c.message, LastHeartbeatTime: now, LastTransitionTime: now})
				continue
			}
			if string(had.Status) != c.status {
				had.LastTransitionTime = now
			}
			had.Status, had.Reason, had.Message, had.LastHeartbeatTime = v1.ConditionStatus(c.status), c.reason, c.message, now
		}
		return n, nil
	})
}

func (w *world) start(name string) {
	w.mu.Lock()
	k := w.kubelet(name)
	k.alive = true
	k.life++
	k.next = time.Time{}
	life := k.life
	now := time.Now()
	go w.beat(k, life, now, true)
	w.mu.Unlock()
	w.a.mu.Lock()
	var mine []*v1.Pod
	for _, e := range w.a.stores["pods"] {
		if p := e.obj.(*v1.Pod); p.Spec.NodeName == name {
			mine = append(mine, p)
		}
	}
	w.a.mu.Unlock()
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, p := range mine {
		id := key(p.Namespace, p.Name)
		if e, ok := w.endings[id]; ok && e.uid == p.UID {
			at := e.at
			if !at.After(now) {
				at = now.Add(100 * time.Millisecond)
			}
			go w.finish(p, e, at)
		} else if w.starting[id] == p.UID && p.UID != "" {
			go w.sees(p, life)
		}
	}
}

func (w *world) stop(name string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	k := w.kubelet(name)
	if k.alive {
		k.alive = false
		k.life++
	}
}

func (w *world) report(name string, told map[string]seen, order []string) {
	w.mu.Lock()
	k := w.kubelet(name)
	changed := false
	for _, t := range order {
		c := told[t]
		plain := c.reason == "" && c.message == ""
		if plain {
			c.reason = reasonOf(t, c.status)
		}
		was, had := k.conds[t]
		if !had || was.status != c.status || (!plain && was != c) {
			if !had {
				k.order = append(k.order, t)
			}
			k.conds[t] = c
			changed = true
		}
	}
	now := changed && k.alive
	if now {
		k.next = time.Now().Add(w.s.report)
	}
	w.mu.Unlock()
	if now {
		w.post(k)
	}
}
