package main

// What answers the writes of the controllers besides kubelets: the scheduler for daemon pods, the
// garbage collector.

import (
	"slices"
	"sort"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
)

// written hears of every write; the API's lock is held, so work is done by goroutines.
func (w *world) written(x write) {
	switch x.resource {
	case "nodes":
		close(w.nodesNew)
		w.nodesNew = make(chan struct{})
		if n, _ := x.new.(*v1.Node); n != nil && x.old == nil {
			go func() {
				w.mu.Lock()
				k := w.kubelets[n.Name]
				if k == nil {
					k = &kubelet{name: n.Name}
					w.kubelets[n.Name] = k
				}
				k.order, k.conds = ownConditions(n)
				w.mu.Unlock()
				if isReady(n) {
					w.start(n.Name)
				}
			}()
		}
	case "pods":
		old, _ := x.old.(*v1.Pod)
		p, _ := x.new.(*v1.Pod)
		if p == nil {
			id, uid := key(old.Namespace, old.Name), old.UID
			go func() {
				w.mu.Lock()
				if w.endings[id].uid == uid {
					delete(w.endings, id)
				}
				if w.starting[id] == uid {
					delete(w.starting, id)
				}
				w.mu.Unlock()
			}()
			return
		}
		if p.Spec.NodeName == "" {
			if old == nil {
				go w.schedule(p)
			}
			return
		}
		if p.DeletionTimestamp != nil {
			if old == nil || old.DeletionTimestamp == nil || !old.DeletionTimestamp.Equal(p.DeletionTimestamp) {
				now := time.Now()
				go w.end(p, now)
			}
		} else if (old == nil || old.Spec.NodeName == "") && (p.Status.Phase == "" || p.Status.Phase == v1.PodPending) {
			go func() {
				w.mu.Lock()
				defer w.mu.Unlock()
				w.starting[key(p.Namespace, p.Name)] = p.UID
				if k := w.kubelets[p.Spec.NodeName]; k != nil && k.alive {
					go w.sees(p, k.life)
				}
			}()
		}
	case "daemonsets":
		if d, _ := x.old.(*appsv1.DaemonSet); d != nil && x.new == nil && w.gc {
			go w.collect(d.UID)
		}
	}
}

// collect is the garbage collector after a delete in the background.
func (w *world) collect(owner types.UID) {
	time.Sleep(30 * time.Millisecond) // it follows with its own watches; sooner, the DaemonSet controller would still see the set and make its revision anew
	w.a.mu.Lock()
	type found struct{ resource, ns, name string }
	var all []found
	for _, r := range []string{"pods", "controllerrevisions"} {
		for _, e := range w.a.stores[r] {
			for _, o := range e.obj.GetOwnerReferences() {
				if o.UID == owner {
					all = append(all, found{r, e.obj.GetNamespace(), e.obj.GetName()})
				}
			}
		}
	}
	w.a.mu.Unlock()
	sort.Slice(all, func(i, j int) bool { return all[i].name < all[j].name })
	for _, f := range all {
		w.a.remove(me, f.resource, f.ns, f.name, metav1.DeleteOptions{})
	}
}

func (w *world) end(p *v1.Pod, asked time.Time) {
	if p.Spec.NodeName == "" {
		return
	}
	after := 30 * time.Second
	if g := p.DeletionGracePeriodSeconds; g != nil {
		after = time.Duration(*g) * time.Second
	}
	if w.s.podStop >= 0 && w.s.podStop < after {
		after = w.s.podStop
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	id := key(p.Namespace, p.Name)
	delete(w.starting, id)
	at := asked.Add(after)
	k := w.kubelets[p.Spec.NodeName]
	lives := k != nil && k.alive
	if lives && !at.After(time.Now()) {
		at = time.Now().Add(100 * time.Millisecond)
	}
	e := ending{p.UID, at}
	w.endings[id] = e
	if lives {
		go w.finish(p, e, at)
	}
}

func (w *world) finish(p *v1.Pod, e ending, at time.Time) {
	comes(at)
	w.mu.Lock()
	same := w.endings[key(p.Namespace, p.Name)] == e
	w.mu.Unlock()
	if !same || !w.alive(p.Spec.NodeName) {
		return
	}
	if len(p.Finalizers) > 0 { // a Job's: its last status is posted before it goes
		w.a.change(me, "patch", "pods", p.Namespace, p.Name, "status", write{}, func(old entry) (metav1.Object, *apiError) {
			q := old.obj.(*v1.Pod).DeepCopy()
			q.Status.Phase = v1.PodFailed
			for i := range q.Status.Conditions {
				if c := &q.Status.Conditions[i]; c.Type == v1.PodReady && c.Status == v1.ConditionTrue {
					c.Status, c.LastTransitionTime = v1.ConditionFalse, stamp()
				}
			}
			return q, nil
		})
	}
	zero := int64(0)
	w.a.remove(me, "pods", p.Namespace, p.Name, metav1.DeleteOptions{GracePeriodSeconds: &zero, Preconditions: &metav1.Preconditions{UID: &p.UID}})
}

// sees is a kubelet that hears of a pod: it runs it, or rejects it (predicateAdmitHandler.Admit).
func (w *world) sees(p *v1.Pod, life int) {
	w.a.mu.Lock()
	n, _ := w.a.get("nodes", "", p.Spec.NodeName)
	w.a.mu.Unlock()
	reason := ""
	if n == nil {
	} else if !labels.SelectorFromSet(p.Spec.NodeSelector).Matches(labels.Set(n.GetLabels())) {
		reason = "NodeAffinity"
	} else if !tolerates(p, n.(*v1.Node).Spec.Taints, v1.TaintEffectNoExecute) {
		reason = "TaintToleration"
	}
	if reason == "" {
		w.run(p, life)
		return
	}
	id := key(p.Namespace, p.Name)
	w.mu.Lock()
	ok := w.starting[id] == p.UID
	if ok {
		delete(w.starting, id)
	}
	w.mu.Unlock()
	if !ok {
		return
	}
	w.a.change(me, "patch", "pods", p.Namespace, p.Name, "status", write{}, func(old entry) (metav1.Object, *apiError) {
		q := old.obj.(*v1.Pod).DeepCopy()
		if q.UID != p.UID {
			return nil, fail(409, metav1.StatusReasonConflict, "another pod")
		}
		q.Status.Phase, q.Status.Reason = v1.PodFailed, reason
		return q, nil
	})
}

// run makes a pod Ready some time after its kubelet knows of it.
func (w *world) run(p *v1.Pod, life int) {
	comes(time.Now().Add(w.s.podStart))
	id := key(p.Namespace, p.Name)
	w.mu.Lock()
	k := w.kubelets[p.Spec.NodeName]
	ok := w.starting[id] == p.UID && k != nil && k.alive && k.life == life
	if ok {
		delete(w.starting, id)
	}
	w.mu.Unlock()
	if !ok {
		return
	}
	now := stamp()
	w.a.change(me, "patch", "pods", p.Namespace, p.Name, "status", write{}, func(old entry) (metav1.Object, *apiError) {
		n := old.obj.(*v1.Pod).DeepCopy()
		if n.UID != p.UID {
			return nil, fail(409, metav1.StatusReasonConflict, "another pod")
		}
		n.Status.Phase, n.Status.StartTime = v1.PodRunning, &now
		for _, t := range []v1.PodConditionType{v1.PodInitialized, v1.PodReady, v1.ContainersReady, v1.PodScheduled} {
			done := false
			for i := range n.Status.Conditions {
				if c := &n.Status.Conditions[i]; c.Type == t {
					done = true
					if c.Status != v1.ConditionTrue {
						*c = v1.PodCondition{Type: t, Status: v1.ConditionTrue, LastTransitionTime: now}
					}
				}
			}
			if !done {
				n.Status.Conditions = append(n.Status.Conditions, v1.PodCondition{Type: t, Status: v1.ConditionTrue, LastTransitionTime: now})
			}
		}
		return n, nil
	})
}

// schedule binds a daemon pod to the node of its affinity, once the filters of taints and labels let it in.
func (w *world) schedule(p *v1.Pod) {
	name := ""
	if a := p.Spec.Affinity; a != nil && a.NodeAffinity != nil && a.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution != nil {
		for _, t := range a.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution.NodeSelectorTerms {
			for _, f := range t.MatchFields {
				if f.Key == "metadata.name" && len(f.Values) == 1 {
					name = f.Values[0]
				}
			}
		}
	}
	if name == "" {
		w.place(p)
		return
	}
	backoff := time.Second
	for {
		w.a.mu.Lock()
		wait := w.nodesNew
		n, _ := w.a.get("nodes", "", name)
		cur, is := w.a.get("pods", p.Namespace, p.Name)
		w.a.mu.Unlock()
		if !is || cur.GetUID() != p.UID {
			return
		}
		if n != nil && admits(n.(*v1.Node), p) {
			w.bind(p, name)
			return
		}
		time.Sleep(backoff)
		if backoff *= 2; backoff > 10*time.Second {
			backoff = 10 * time.Second
		}
		<-wait
	}
}

// place binds a pod of a ReplicaSet to the node that it fits on with the fewest pods, once there is one (FewestPods).
func (w *world) place(p *v1.Pod) {
	for {
		w.a.mu.Lock()
		wait := w.nodesNew
		best, fewest := "", 0
		for _, e := range w.a.stores["nodes"] {
			n := e.obj.(*v1.Node)
			if !admits(n, p) {
				continue
			}
			count := 0
			for _, other := range w.a.stores["pods"] {
				if other.obj.(*v1.Pod).Spec.NodeName == n.Name {
					count++
				}
			}
			if best == "" || count < fewest || (count == fewest && n.Name < best) {
				best, fewest = n.Name, count
			}
		}
		w.a.mu.Unlock()
		if best != "" {
			w.bind(p, best)
			return
		}
		<-wait
	}
}

func (w *world) bind(p *v1.Pod, name string) {
	w.a.change(me, "create", "pods", p.Namespace, p.Name, "binding", write{}, func(old entry) (metav1.Object, *apiError) {
		q := old.obj.(*v1.Pod).DeepCopy()
		q.Spec.NodeName = name
		q.Status.Conditions = append(q.Status.Conditions, v1.PodCondition{Type: v1.PodScheduled, Status: v1.ConditionTrue, LastTransitionTime: stamp()})
		return q, nil
	})
}

func admits(n *v1.Node, p *v1.Pod) bool {
	taints := append([]v1.Taint(nil), n.Spec.Taints...)
	if n.Spec.Unschedulable {
		taints = append(taints, v1.Taint{Key: v1.TaintNodeUnschedulable, Effect: v1.TaintEffectNoSchedule})
	}
	return tolerates(p, taints, v1.TaintEffectNoSchedule, v1.TaintEffectNoExecute) && labels.SelectorFromSet(p.Spec.NodeSelector).Matches(labels.Set(n.Labels))
}

// tolerates says whether a pod tolerates all taints of these effects.
func tolerates(p *v1.Pod, taints []v1.Taint, effects ...v1.TaintEffect) bool {
next:
	for _, t := range taints {
		if !slices.Contains(effects, t.Effect) {
			continue
		}
		for _, tol := range p.Spec.Tolerations {
			if (tol.Effect == "" || tol.Effect == t.Effect) && (tol.Key == "" || tol.Key == t.Key) && (tol.Operator == v1.TolerationOpExists || tol.Value == t.Value) {
				continue next
			}
		}
		return false
	}
	return true
}
