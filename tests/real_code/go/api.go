package main

// The API server of the bubble: objects in memory, served to real client-go clients through an http.RoundTripper (no socket).

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math/rand"
	"reflect"
	"strconv"
	"sync"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	coordv1 "k8s.io/api/coordination/v1"
	v1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	appsdefaults "k8s.io/kubernetes/pkg/apis/apps/v1"
	batchdefaults "k8s.io/kubernetes/pkg/apis/batch/v1"
	coredefaults "k8s.io/kubernetes/pkg/apis/core/v1"
	podstorage "k8s.io/kubernetes/pkg/registry/core/pod/storage"
)

type kindInfo struct {
	kind, apiVersion string
	namespaced       bool
	fresh            func() metav1.Object
}

var kinds = map[string]kindInfo{
	"nodes":                  {"Node", "v1", false, func() metav1.Object { return &v1.Node{} }},
	"pods":                   {"Pod", "v1", true, func() metav1.Object { return &v1.Pod{} }},
	"events":                 {"Event", "v1", true, func() metav1.Object { return &v1.Event{} }},
	"daemonsets":             {"DaemonSet", "apps/v1", true, func() metav1.Object { return &appsv1.DaemonSet{} }},
	"controllerrevisions":    {"ControllerRevision", "apps/v1", true, func() metav1.Object { return &appsv1.ControllerRevision{} }},
	"deployments":            {"Deployment", "apps/v1", true, func() metav1.Object { return &appsv1.Deployment{} }},
	"replicasets":            {"ReplicaSet", "apps/v1", true, func() metav1.Object { return &appsv1.ReplicaSet{} }},
	"statefulsets":           {"StatefulSet", "apps/v1", true, func() metav1.Object { return &appsv1.StatefulSet{} }},
	"replicationcontrollers": {"ReplicationController", "v1", true, func() metav1.Object { return &v1.ReplicationController{} }},
	"persistentvolumeclaims": {"PersistentVolumeClaim", "v1", true, func() metav1.Object { return &v1.PersistentVolumeClaim{} }},
	"jobs":                   {"Job", "batch/v1", true, func() metav1.Object { return &batchv1.Job{} }},
	"poddisruptionbudgets":   {"PodDisruptionBudget", "policy/v1", true, func() metav1.Object { return &policyv1.PodDisruptionBudget{} }},
	"leases":                 {"Lease", "coordination.k8s.io/v1", true, func() metav1.Object { return &coordv1.Lease{} }},
}

var resourceOf = map[string]string{"Node": "nodes", "Pod": "pods", "DaemonSet": "daemonsets", "ControllerRevision": "controllerrevisions", "Deployment": "deployments", "ReplicaSet": "replicasets", "StatefulSet": "statefulsets", "ReplicationController": "replicationcontrollers", "Job": "jobs", "PodDisruptionBudget": "poddisruptionbudgets", "Lease": "leases", "Event": "events"}

const templateGeneration = "deprecated.daemonset.template.generation"

type entry struct {
	obj  metav1.Object // never changed in place
	json []byte
}

type watchEvent struct {
	rv   int64
	at   time.Time // when watchers see it
	line []byte
}

type watcher struct {
	ns    string
	queue []watchEvent
	wake  chan struct{}
}

type apiError struct {
	code   int
	reason metav1.StatusReason
	text   string
}

func (e *apiError) Error() string { return e.text }

func fail(code int, reason metav1.StatusReason, format string, a ...any) *apiError {
	return &apiError{code, reason, fmt.Sprintf(format, a...)}
}

// write is one change of an object: what the audit log would show of it, and more.
type write struct {
	agent, verb, resource, sub string
	old, new                   metav1.Object
	grace                      *int64 // of a delete, as asked for
	taints, labels             bool   // of a node: whether the request speaks of them
	labelKeys                  []string
}

type api struct {
	t0        time.Time
	failing   []failing
	reads     []failing
	held      chan struct{} // while the watch of Leases stands still: closed when it goes on
	mu        sync.Mutex
	rv        int64
	uids      int64
	stores    map[string]map[string]entry
	history   map[string][]watchEvent
	watchers  map[string][]*watcher
	rnd       *rand.Rand
	lag       func() time.Duration // how long after a write watchers see it
	slow      func() time.Duration // half of what a write takes
	lastSeen  map[string]time.Time // order is kept
	onWrite   []func(w write)      // under the lock: must not block
	admit     func(p *v1.Pod)      // admission
	requests  map[string]int
	evictions *podstorage.EvictionREST
	onAnswer  func(kind, namespace, name, action string, detail map[string]any) // of evictions
}

func newAPI(seed int64, lag func(*rand.Rand) time.Duration) *api {
	a := &api{rv: 1000, stores: map[string]map[string]entry{}, history: map[string][]watchEvent{}, watchers: map[string][]*watcher{}, rnd: rand.New(rand.NewSource(seed)), lastSeen: map[string]time.Time{}, requests: map[string]int{}}
	a.lag = func() time.Duration { return lag(a.rnd) }
	for r := range kinds {
		a.stores[r] = map[string]entry{}
	}
	return a
}

func key(ns, name string) string { return ns + "/" + name }

func (a *api) encode(resource string, o metav1.Object) []byte {
	k := kinds[resource]
	b, err := json.Marshal(o)
	if err != nil {
		panic(err)
	}
	head := fmt.Sprintf(`{"kind":%q,"apiVersion":%q,`, k.kind, k.apiVersion)
	return append([]byte(head), b[1:]...)
}

func (a *api) decode(resource string, b []byte) (metav1.Object, error) {
	o := kinds[resource].fresh()
	if err := json.Unmarshal(b, o); err != nil {
		return nil, fail(400, metav1.StatusReasonBadRequest, "%v", err)
	}
	o.(runtime.Object).GetObjectKind().SetGroupVersionKind(schema.GroupVersionKind{}) // the same form for all: both are put on when encoding
	return o, nil
}

// put stores what is decided; the lock is held.
func (a *api) put(resource string, o metav1.Object, w *write) metav1.Object {
	a.rv++
	o.SetResourceVersion(strconv.FormatInt(a.rv, 10))
	k := key(o.GetNamespace(), o.GetName())
	old, was := a.stores[resource][k]
	b := a.encode(resource, o)
	a.stores[resource][k] = entry{o, b}
	kind := "MODIFIED"
	if !was {
		kind = "ADDED"
	}
	a.tell(resource, kind, o.GetNamespace(), b)
	if w != nil {
		w.resource, w.new = resource, o
		if was {
			w.old = old.obj
		}
		for _, f := range a.onWrite {
			f(*w)
		}
	}
	return o
}

func (a *api) drop(resource string, o metav1.Object, w *write) {
	k := key(o.GetNamespace(), o.GetName())
	old, was := a.stores[resource][k]
	if !was {
		return
	}
	delete(a.stores[resource], k)
	a.rv++
	last, _ := a.decode(resource, old.json)
	last.SetResourceVersion(strconv.FormatInt(a.rv, 10))
	a.tell(resource, "DELETED", o.GetNamespace(), a.encode(resource, last))
	if w != nil {
		w.resource, w.old, w.new = resource, old.obj, nil
		for _, f := range a.onWrite {
			f(*w)
		}
	}
}

func (a *api) tell(resource, kind, ns string, b []byte) {
	if resource == "events" {
		return
	}
	line := make([]byte, 0, len(b)+40)
	line = append(line, `{"type":"`+kind+`","object":`...)
	line = append(line, b...)
	line = append(line, '}', '\n')
	at := time.Now().Add(a.lag())
	if at.Before(a.lastSeen[resource]) {
		at = a.lastSeen[resource]
	}
	a.lastSeen[resource] = at
	e := watchEvent{a.rv, at, line}
	if a.watchers[resource] == nil {
		a.history[resource] = append(a.history[resource], e)
	}
	for _, w := range a.watchers[resource] {
		if w.ns == "" || w.ns == ns {
			w.queue = append(w.queue, e)
			select {
			case w.wake <- struct{}{}:
			default:
			}
		}
	}
}

func (a *api) get(resource, ns, name string) (metav1.Object, bool) {
	e, ok := a.stores[resource][key(ns, name)]
	return e.obj, ok
}

func (a *api) newUID() types.UID {
	a.uids++
	return types.UID(fmt.Sprintf("00000000-0000-4000-8000-%012d", a.uids))
}

const letters = "bcdfghjklmnpqrstvwxz2456789"

func (a *api) suffix() string {
	b := make([]byte, 5)
	for i := range b {
		b[i] = letters[a.rnd.Intn(len(letters))]
	}
	return string(b)
}

// create follows the registry's BeforeCreate and the strategies of the kinds. raw: as written (objects of the start).
func (a *api) create(agent, resource string, o metav1.Object, raw bool) (metav1.Object, *apiError) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if o.GetName() == "" {
		o.SetName(o.GetGenerateName() + a.suffix())
		for _, taken := a.get(resource, o.GetNamespace(), o.GetName()); taken; _, taken = a.get(resource, o.GetNamespace(), o.GetName()) {
			o.SetName(o.GetGenerateName() + a.suffix())
		}
	}
	if _, taken := a.get(resource, o.GetNamespace(), o.GetName()); taken {
		return nil, fail(409, metav1.StatusReasonAlreadyExists, "%s %q already exists", resource, o.GetName())
	}
	if o.GetUID() == "" || !raw {
		o.SetUID(a.newUID())
	}
	if t := o.GetCreationTimestamp(); t.IsZero() || !raw {
		o.SetCreationTimestamp(metav1.Time{Time: time.Now().Truncate(time.Second)})
	}
	switch t := o.(type) {
	case *v1.Node:
		coredefaults.SetObjectDefaults_Node(t)
	case *v1.Pod:
		coredefaults.SetObjectDefaults_Pod(t)
		if t.Generation == 0 {
			t.Generation = 1
		}
		if !raw {
			if agent != "cluster" {
				t.Status = v1.PodStatus{}
			}
			if t.Status.Phase == "" {
				t.Status.Phase = v1.PodPending
			}
			if a.admit != nil {
				a.admit(t)
			}
		}
	case *appsv1.DaemonSet:
		appsdefaults.SetObjectDefaults_DaemonSet(t)
		if t.Generation == 0 {
			t.Generation = 1
			if t.Annotations == nil {
				t.Annotations = map[string]string{}
			}
			if t.Annotations[templateGeneration] == "" {
				t.Annotations[templateGeneration] = "1"
			}
		}
	case *appsv1.Deployment:
		appsdefaults.SetObjectDefaults_Deployment(t)
		t.Generation = 1
	case *appsv1.ReplicaSet:
		appsdefaults.SetObjectDefaults_ReplicaSet(t)
		t.Generation = 1
	case *appsv1.StatefulSet:
		appsdefaults.SetObjectDefaults_StatefulSet(t)
		t.Generation = 1
	case *v1.ReplicationController:
		coredefaults.SetObjectDefaults_ReplicationController(t)
		t.Generation = 1
	case *batchv1.Job:
		batchdefaults.SetObjectDefaults_Job(t)
		t.Generation = 1
	case *policyv1.PodDisruptionBudget:
		t.Generation = 1
	}
	return a.put(resource, o, &write{agent: agent, verb: "create"}), nil
}

// change is PUT and PATCH: make gives the object that is wished for from the stored one.
func (a *api) change(agent, verb, resource, ns, name, sub string, w write, make func(old entry) (metav1.Object, *apiError)) (metav1.Object, *apiError) {
	a.mu.Lock()
	defer a.mu.Unlock()
	old, ok := a.stores[resource][key(ns, name)]
	if !ok {
		return nil, fail(404, metav1.StatusReasonNotFound, "%s %q not found", resource, name)
	}
	o, err := make(old)
	if err != nil {
		return nil, err
	}
	if v := o.GetResourceVersion(); v != "" && v != old.obj.GetResourceVersion() {
		return nil, fail(409, metav1.StatusReasonConflict, "Operation cannot be fulfilled on %s %q: the object has been modified; please apply your changes to the latest version and try again", resource, name)
	}
	if u := o.GetUID(); u != "" && u != old.obj.GetUID() {
		return nil, fail(409, metav1.StatusReasonConflict, "Operation cannot be fulfilled on %s %q: Precondition failed: UID in precondition: %v, UID in object meta: %v", resource, name, u, old.obj.GetUID())
	}
	o.SetName(old.obj.GetName())
	o.SetNamespace(old.obj.GetNamespace())
	o.SetUID(old.obj.GetUID())
	o.SetCreationTimestamp(old.obj.GetCreationTimestamp())
	o.SetDeletionTimestamp(old.obj.GetDeletionTimestamp())
	o.SetDeletionGracePeriodSeconds(old.obj.GetDeletionGracePeriodSeconds())
	o.SetGeneration(old.obj.GetGeneration())
	o.SetManagedFields(nil)
	switch t := o.(type) {
	case *v1.Node:
		was := old.obj.(*v1.Node)
		if sub == "status" {
			t.Spec, t.Labels, t.Annotations = was.Spec, was.Labels, was.Annotations
		} else if agent != "cluster" {
			t.Status = was.Status
		}
	case *v1.Pod:
		was := old.obj.(*v1.Pod)
		if sub == "status" {
			t.Spec, t.Labels, t.OwnerReferences = was.Spec, was.Labels, was.OwnerReferences
			if t.Status.QOSClass == "" {
				t.Status.QOSClass = was.Status.QOSClass
			}
			keepObservedGeneration(&t.Status, &was.Status)
		} else {
			if agent != "cluster" {
				t.Status = was.Status
			}
			coredefaults.SetObjectDefaults_Pod(t)
			if !apiequality.Semantic.DeepEqual(t.Spec, was.Spec) {
				t.Generation++
			}
			if a.admit != nil && agent == "cluster" {
				a.admit(t)
			}
		}
	case *appsv1.DaemonSet:
		was := old.obj.(*appsv1.DaemonSet)
		if sub == "status" {
			t.Spec, t.Labels, t.Annotations = was.Spec, was.Labels, was.Annotations
		} else {
			t.Status = was.Status
			appsdefaults.SetObjectDefaults_DaemonSet(t)
			if t.Annotations == nil {
				t.Annotations = map[string]string{}
			}
			n, _ := strconv.Atoi(was.Annotations[templateGeneration])
			if !apiequality.Semantic.DeepEqual(t.Spec.Template, was.Spec.Template) {
				n++
				t.Generation++
			} else if !apiequality.Semantic.DeepEqual(t.Spec, was.Spec) {
				t.Generation++
			}
			t.Annotations[templateGeneration] = strconv.Itoa(n)
		}
	case *appsv1.Deployment:
		was := old.obj.(*appsv1.Deployment)
		if sub == "status" {
			t.Spec, t.Labels = was.Spec, was.Labels
			break
		}
		t.Status = was.Status
		appsdefaults.SetObjectDefaults_Deployment(t)
		if !apiequality.Semantic.DeepEqual(t.Spec, was.Spec) {
			t.Generation++
		}
	case *appsv1.ReplicaSet:
		was := old.obj.(*appsv1.ReplicaSet)
		if sub == "status" {
			t.Spec, t.Labels = was.Spec, was.Labels
			break
		}
		t.Status = was.Status
		appsdefaults.SetObjectDefaults_ReplicaSet(t)
		if !apiequality.Semantic.DeepEqual(t.Spec, was.Spec) {
			t.Generation++
		}
	}
	if t, is := o.(*policyv1.PodDisruptionBudget); is {
		was := old.obj.(*policyv1.PodDisruptionBudget)
		if sub == "status" {
			t.Spec, t.Labels = was.Spec, was.Labels
		} else if t.Status = was.Status; !apiequality.Semantic.DeepEqual(t.Spec, was.Spec) {
			t.Generation++
		}
	}
	switch t := o.(type) { // of these only the status is written
	case *appsv1.StatefulSet:
		t.Spec, t.Labels = old.obj.(*appsv1.StatefulSet).Spec, old.obj.GetLabels()
	case *batchv1.Job:
		t.Spec, t.Labels = old.obj.(*batchv1.Job).Spec, old.obj.GetLabels()
	case *v1.ReplicationController:
		t.Spec, t.Labels = old.obj.(*v1.ReplicationController).Spec, old.obj.GetLabels()
	}
	o.SetResourceVersion(old.obj.GetResourceVersion())
	if bytes.Equal(a.encode(resource, o), old.json) { // a write that changes nothing is none
		w.agent, w.verb, w.sub, w.resource, w.old, w.new = agent, verb, sub, resource, old.obj, old.obj
		for _, f := range a.onWrite {
			f(w)
		}
		return old.obj, nil
	}
	w.agent, w.verb, w.sub = agent, verb, sub
	if g := o.GetDeletionGracePeriodSeconds(); g != nil && *g == 0 && len(o.GetFinalizers()) == 0 { // what the deletion waited for
		a.drop(resource, o, &w)
		return o, nil
	}
	return a.put(resource, o, &w), nil
}

// remove follows rest.BeforeDelete and podStrategy.CheckGracefulDelete.
func (a *api) remove(agent, resource, ns, name string, opts metav1.DeleteOptions) (metav1.Object, *apiError) {
	a.mu.Lock()
	defer a.mu.Unlock()
	o, ok := a.get(resource, ns, name)
	if !ok {
		return nil, fail(404, metav1.StatusReasonNotFound, "%s %q not found", resource, name)
	}
	if p := opts.Preconditions; p != nil {
		if p.UID != nil && *p.UID != o.GetUID() {
			return nil, fail(409, metav1.StatusReasonConflict, "the UID in the precondition (%s) does not match", *p.UID)
		}
		if p.ResourceVersion != nil && *p.ResourceVersion != o.GetResourceVersion() {
			return nil, fail(409, metav1.StatusReasonConflict, "the ResourceVersion in the precondition does not match")
		}
	}
	w := &write{agent: agent, verb: "delete", grace: opts.GracePeriodSeconds}
	if pod, is := o.(*v1.Pod); is {
		asked := opts.GracePeriodSeconds
		period := int64(0)
		if asked != nil {
			period = *asked
		} else if g := pod.Spec.TerminationGracePeriodSeconds; g != nil {
			period = *g
		}
		if pod.Spec.NodeName == "" || pod.Status.Phase == v1.PodFailed || pod.Status.Phase == v1.PodSucceeded {
			period = 0
		}
		if period < 0 {
			period = 1
		}
		copy := pod.DeepCopy()
		if d := pod.DeletionTimestamp; d != nil {
			left := pod.DeletionGracePeriodSeconds
			if left != nil && *left != 0 && period != 0 {
				if asked != nil && period < *left {
					t := metav1.NewTime(d.Add(-time.Second * time.Duration(*left)).Add(time.Second * time.Duration(period)))
					if t.Time.Before(time.Now()) { // as rest.BeforeDelete: all of that grace is over
						t, period = stamp(), 1
					}
					copy.DeletionTimestamp, copy.DeletionGracePeriodSeconds = &t, &period
					return a.put(resource, copy, w), nil
				}
				w.resource, w.old, w.new = resource, o, o
				for _, f := range a.onWrite {
					f(*w)
				}
				return o, nil
			}
		} else if period > 0 {
			t := metav1.NewTime(time.Now().Truncate(time.Second).Add(time.Second * time.Duration(period)))
			copy.DeletionTimestamp, copy.DeletionGracePeriodSeconds = &t, &period
			if copy.Generation > 0 {
				copy.Generation++
			}
			return a.put(resource, copy, w), nil
		}
		if len(pod.Finalizers) > 0 {
			deleted := stamp()
			if d := pod.DeletionTimestamp; d != nil { // a shorter grace period counts from the same instant
				deleted = metav1.NewTime(d.Add(-time.Second * time.Duration(*pod.DeletionGracePeriodSeconds)))
			}
			copy.DeletionTimestamp = &deleted
			copy.DeletionGracePeriodSeconds = new(int64)
			return a.put(resource, copy, w), nil
		}
	}
	a.drop(resource, o, w)
	return o, nil
}

// keepObservedGeneration takes the old status' observedGeneration, where the new one has none. Releases before v1.33 have
// no such field.
func keepObservedGeneration(new, old *v1.PodStatus) {
	const name = "ObservedGeneration"
	if field := reflect.ValueOf(new).Elem().FieldByName(name); field.IsValid() && field.IsZero() {
		field.Set(reflect.ValueOf(old).Elem().FieldByName(name))
	}
}
