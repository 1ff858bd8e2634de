package main

// What the scenario's events do to the cluster.

import (
	"encoding/json"
	"sort"
	"strings"
	"time"

	coordv1 "k8s.io/api/coordination/v1"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
)

func (w *world) pick(names []string, selector string) []string {
	if selector == "" {
		return names
	}
	sel, err := labels.Parse(selector)
	if err != nil {
		panic(err)
	}
	w.a.mu.Lock()
	defer w.a.mu.Unlock()
	var out []string
	for _, e := range w.a.stores["nodes"] {
		if sel.Matches(labels.Set(e.obj.GetLabels())) {
			out = append(out, e.obj.GetName())
		}
	}
	sort.Strings(out)
	return out
}

func (w *world) changeNode(name string, f func(n *v1.Node)) {
	w.a.change(me, "patch", "nodes", "", name, "", write{}, func(old entry) (metav1.Object, *apiError) {
		n := old.obj.(*v1.Node).DeepCopy()
		f(n)
		return n, nil
	})
}

func parseTaint(s string) v1.Taint {
	kv, effect, _ := cutLast(s, ":")
	k, val, _ := strings.Cut(kv, "=")
	return v1.Taint{Key: k, Value: val, Effect: v1.TaintEffect(effect)}
}

func cutLast(s, sep string) (string, string, bool) {
	if i := strings.LastIndex(s, sep); i >= 0 {
		return s[:i], s[i+1:], true
	}
	return s, "", false
}

func (w *world) play(e event) {
	switch {
	case e.Kubelet != nil:
		for _, n := range w.pick(e.Kubelet.Nodes, e.Kubelet.Selector) {
			if len(e.Kubelet.Conditions) > 0 {
				told, order := map[string]seen{}, []string{}
				for t, raw := range e.Kubelet.Conditions {
					var c struct{ Status, Reason, Message string }
					if json.Unmarshal(raw, &c) != nil {
						json.Unmarshal(raw, &c.Status)
					}
					told[t] = seen{c.Status, c.Reason, c.Message}
					order = append(order, t)
				}
				sort.Strings(order)
				w.report(n, told, order)
			}
			switch e.Kubelet.Heartbeats {
			case "stop":
				w.stop(n)
			case "start":
				w.start(n)
			}
		}
	case e.Taint != nil:
		for _, name := range w.pick(e.Taint.Nodes, e.Taint.Selector) {
			w.changeNode(name, func(n *v1.Node) {
				for _, s := range e.Taint.Add {
					t, done := parseTaint(s), false
					for i := range n.Spec.Taints {
						if n.Spec.Taints[i].Key == t.Key && n.Spec.Taints[i].Effect == t.Effect {
							n.Spec.Taints[i], done = t, true
						}
					}
					if !done {
						n.Spec.Taints = append(n.Spec.Taints, t)
					}
				}
				var kept []v1.Taint
				for _, t := range n.Spec.Taints {
					gone := false
					for _, s := range e.Taint.Remove {
						r := parseTaint(s)
						gone = gone || (r.Key == t.Key && (r.Effect == t.Effect || r.Effect == ""))
					}
					if !gone {
						kept = append(kept, t)
					}
				}
				n.Spec.Taints = kept
			})
		}
	case e.Lease != nil:
		for _, name := range w.pick(e.Lease.Nodes, e.Lease.Selector) {
			w.touch(name)
		}
	case e.Controllers != nil:
		w.a.holdLeases(e.Controllers.Leases == "stale")
	case e.Cordon != nil:
		for _, name := range w.pick(e.Cordon.Nodes, e.Cordon.Selector) {
			w.changeNode(name, func(n *v1.Node) { n.Spec.Unschedulable = true })
		}
	case e.Uncordon != nil:
		for _, name := range w.pick(e.Uncordon.Nodes, e.Uncordon.Selector) {
			w.changeNode(name, func(n *v1.Node) { n.Spec.Unschedulable = false })
		}
	case e.Drain != nil:
		go w.drain(e.Drain, w.pick(e.Drain.Nodes, e.Drain.Selector))
	case e.Apply != nil:
		w.apply(e.Apply)
	case e.Delete != nil:
		r := resourceOf[e.Delete.Kind]
		ns := e.Delete.Namespace
		if kinds[r].namespaced && ns == "" {
			ns = "default"
		}
		w.a.remove(me, r, ns, e.Delete.Name, metav1.DeleteOptions{})
	}
}

// touch writes to a node's Lease without moving its renewTime.
func (w *world) touch(name string) {
	w.a.change(me, "patch", "leases", leases, name, "", write{}, func(old entry) (metav1.Object, *apiError) {
		l := old.obj.(*coordv1.Lease).DeepCopy()
		l.Annotations = map[string]string{"touched": time.Now().String()}
		return l, nil
	})
}

func (w *world) apply(raw json.RawMessage) {
	r, o := w.object(raw)
	w.a.mu.Lock()
	_, is := w.a.get(r, o.GetNamespace(), o.GetName())
	w.a.mu.Unlock()
	if !is {
		w.a.create(me, r, o, false)
		return
	}
	var doc map[string]any
	if err := json.Unmarshal(raw, &doc); err != nil {
		panic(err)
	}
	delete(doc, "apiVersion")
	delete(doc, "kind")
	b, _ := json.Marshal(doc)
	w.a.patch(me, target{resource: r, ns: o.GetNamespace(), name: o.GetName()}, string(types.MergePatchType), b)
}

func (w *world) object(raw json.RawMessage) (string, metav1.Object) {
	var head struct{ Kind string }
	if err := json.Unmarshal(raw, &head); err != nil {
		panic(err)
	}
	r, ok := resourceOf[head.Kind]
	if !ok {
		panic("not played: " + head.Kind)
	}
	o, err := w.a.decode(r, raw)
	if err != nil {
		panic(err)
	}
	if kinds[r].namespaced && o.GetNamespace() == "" {
		o.SetNamespace("default")
	}
	return r, o
}
