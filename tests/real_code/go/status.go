package main

// The kubelet's own status manager (pkg/kubelet/status) with its pod manager, on virtual time: -status plays a list of
// sequences of tests/real_code/status_manager.py and writes each call to the API server and each status that it has cached.

import (
	"context"
	"encoding/json"
	"math/rand"
	"net/http"
	"os"
	"reflect"
	"sync"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"
	kubecontainer "k8s.io/kubernetes/pkg/kubelet/container"
	kubepod "k8s.io/kubernetes/pkg/kubelet/pod"
	"k8s.io/kubernetes/pkg/kubelet/status"
	kubetypes "k8s.io/kubernetes/pkg/kubelet/types"
	kubeletutil "k8s.io/kubernetes/pkg/kubelet/util"
)

type sequence struct {
	Latency, Lag, End time.Duration // of each call, of the watch
	Pods              []json.RawMessage
	Steps             []statusStep
}

type statusStep struct {
	At                             time.Duration
	Op, UID, Name, Container, Verb string
	Volume                         string
	Generate, Value, NoSandbox     bool
	Code, Times                    int
	Grace                          int64
	Keep, Drop                     []string
	Pod, Status, Fields, Health    json.RawMessage
	Conditions                     []v1.PodCondition
}

type statusCall struct {
	At     time.Duration   `json:"at"`
	Verb   string          `json:"verb"`
	Pod    string          `json:"pod"`
	Code   int             `json:"code"`
	Status json.RawMessage `json:"status,omitempty"`
}

type cachedStatus struct {
	Step   int           `json:"step"` // -1: at the end
	UID    string        `json:"uid"`
	Status *v1.PodStatus `json:"status"`
}

type played struct {
	T0     time.Time      `json:"t0"`
	Calls  []statusCall   `json:"calls"`
	Cached []cachedStatus `json:"cached"`
}

// managed is one status manager with its surroundings.
type managed struct {
	a       *api
	t0      time.Time
	latency time.Duration
	pods    kubepod.Manager
	manager status.Manager
	running bool // what PodCouldHaveRunningContainers says
	seen    map[types.UID]*v1.Pod
	mu      sync.Mutex
	faults  []statusStep
	out     *played
}

func (k *managed) PodCouldHaveRunningContainers(*v1.Pod) bool { return k.running }

// invoke calls a function of upstream with those of the arguments that it takes, each the first of its type: releases
// differ in whether there is a logger, or a spec in the place of a pod. What is not given is nil.
func invoke(f any, args ...any) []reflect.Value {
	fn := reflect.ValueOf(f)
	var in []reflect.Value
	taken := map[int]bool{}
	for i := range fn.Type().NumIn() {
		value := reflect.Zero(fn.Type().In(i))
		for j, a := range args {
			if !taken[j] && reflect.TypeOf(a).AssignableTo(fn.Type().In(i)) {
				taken[j] = true
				value = reflect.ValueOf(a)
				break
			}
		}
		in = append(in, value)
	}
	return fn.Call(in)
}

// RoundTrip serves a call of the status manager, later by the latency, unless a step fails it.
func (k *managed) RoundTrip(r *http.Request) (*http.Response, error) {
	time.Sleep(k.latency)
	t, _ := parsePath(r.URL.Path)
	verb := map[string]string{"GET": "get", "PATCH": "patch", "DELETE": "delete"}[r.Method]
	response, err := k.answer(r, t, verb)
	call := statusCall{At: time.Since(k.t0), Verb: verb, Pod: t.name, Code: response.StatusCode}
	if verb == "patch" && call.Code == 200 {
		k.a.mu.Lock()
		o, _ := k.a.get("pods", t.ns, t.name)
		k.a.mu.Unlock()
		call.Status, _ = json.Marshal(o.(*v1.Pod).Status)
	}
	k.mu.Lock()
	k.out.Calls = append(k.out.Calls, call)
	k.mu.Unlock()
	return response, err
}

func (k *managed) answer(r *http.Request, t target, verb string) (*http.Response, error) {
	w := wire{k.a, "kubelet"}
	k.mu.Lock()
	for i := range k.faults {
		if f := &k.faults[i]; f.Verb == verb && f.Name == t.name && f.Times > 0 {
			f.Times--
			k.mu.Unlock()
			return w.refuse(r, &failing{code: f.Code})
		}
	}
	k.mu.Unlock()
	return w.RoundTrip(r)
}

// watch tells the pod manager of a write, later by the lag.
func (k *managed) watch(w write, lag time.Duration) {
	go func() {
		time.Sleep(lag)
		if w.new == nil {
			k.pods.RemovePod(w.old.(*v1.Pod))
			return
		}
		k.take(w.new.(*v1.Pod))
	}()
}

func (k *managed) take(p *v1.Pod) {
	p = p.DeepCopy()
	if p.Annotations == nil {
		p.Annotations = map[string]string{}
	}
	if p.Annotations[kubetypes.ConfigSourceAnnotationKey] != "file" || kubetypes.IsMirrorPod(p) {
		p.Annotations[kubetypes.ConfigSourceAnnotationKey] = "api"
	}
	k.seen[p.UID] = p
	k.pods.AddPod(p)
}

// store puts a pod where its name is free: as it is, and so without a generation, which our status manager leaves out.
func (k *managed) store(p *v1.Pod) {
	k.a.mu.Lock()
	defer k.a.mu.Unlock()
	if _, taken := k.a.get("pods", p.Namespace, p.Name); !taken {
		k.a.put("pods", p, &write{})
	}
}

func (k *managed) pod(uid string) *v1.Pod {
	if p, ok := k.pods.GetPodByUID(types.UID(uid)); ok {
		return p
	}
	return k.seen[types.UID(uid)]
}

func read[T any](raw json.RawMessage) *T {
	value := new(T)
	if err := json.Unmarshal(raw, value); err != nil {
		panic(err)
	}
	return value
}

func (k *managed) step(s statusStep) {
	logger := klog.Background()
	container := invoke(kubecontainer.ParseContainerID, logger, s.Container)[0].Interface()
	p := k.pod(s.UID)
	if s.UID != "" && p == nil {
		return // a pod that could not be made
	}
	switch s.Op {
	case "setPodStatus":
		st := read[v1.PodStatus](s.Status)
		if s.Generate {
			generate(p, st)
		}
		if s.NoSandbox {
			made := invoke(status.GeneratePodReadyToStartContainersCondition, p, st.DeepCopy(), &kubecontainer.PodStatus{})[0]
			st.Conditions = append(st.Conditions, made.Interface().(v1.PodCondition))
		}
		invoke(k.manager.SetPodStatus, logger, p, *st)
	case "setContainerReadiness":
		invoke(k.manager.SetContainerReadiness, logger, types.UID(s.UID), container, s.Value)
	case "setContainerStartup":
		invoke(k.manager.SetContainerStartup, logger, types.UID(s.UID), container, s.Value)
	case "setPodVolumeHealth":
		if set := reflect.ValueOf(k.manager).MethodByName("SetPodVolumeHealth"); set.IsValid() { // from v1.37 on
			if err := utilfeature.DefaultMutableFeatureGate.Set("CSIVolumeHealth=true"); err != nil { // without it no one calls
				panic(err)
			}
			health := reflect.New(set.Type().In(3))
			if err := json.Unmarshal(s.Health, health.Interface()); err != nil {
				panic(err)
			}
			set.Call([]reflect.Value{reflect.ValueOf(logger), reflect.ValueOf(types.UID(s.UID)), reflect.ValueOf(s.Volume), health.Elem()})
		}
	case "terminatePod":
		invoke(k.manager.TerminatePod, logger, p)
	case "removeOrphanedStatuses":
		keep := map[types.UID]bool{}
		for _, uid := range s.Keep {
			keep[types.UID(uid)] = true
		}
		invoke(k.manager.RemoveOrphanedStatuses, logger, keep)
	case "kubelet":
		k.running = s.Value
	case "fail":
		k.faults = append(k.faults, s)
	case "create":
		k.store(read[v1.Pod](s.Pod))
	case "delete":
		k.a.remove("cluster", "pods", "default", s.Name, metav1.DeleteOptions{GracePeriodSeconds: &s.Grace})
	case "change":
		k.change(s)
	default:
		panic(s.Op)
	}
}

// generate adds the conditions that the kubelet computes (generateAPIPodStatus).
func generate(p *v1.Pod, st *v1.PodStatus) {
	all := append(append([]v1.ContainerStatus(nil), st.InitContainerStatuses...), st.ContainerStatuses...)
	old := st.DeepCopy()
	for _, f := range []any{status.GeneratePodInitializedCondition, status.GeneratePodReadyCondition, status.GenerateContainersReadyCondition} {
		made := invoke(f, p, &p.Spec, old, st.Conditions, all, st.Phase)[0].Interface().(v1.PodCondition)
		st.Conditions = append(st.Conditions, made)
	}
	st.Conditions = append(st.Conditions, v1.PodCondition{Type: v1.PodScheduled, Status: v1.ConditionTrue})
}

// change is a write of the pod's status by somebody else.
func (k *managed) change(s statusStep) {
	k.a.change("cluster", "patch", "pods", "default", s.Name, "status", write{}, func(old entry) (metav1.Object, *apiError) {
		p := old.obj.(*v1.Pod).DeepCopy()
		var conditions []v1.PodCondition
	each:
		for _, c := range p.Status.Conditions {
			for _, dropped := range s.Drop {
				if string(c.Type) == dropped {
					continue each
				}
			}
			conditions = append(conditions, c)
		}
		p.Status.Conditions = append(conditions, s.Conditions...)
		if len(s.Fields) > 0 {
			if err := json.Unmarshal(s.Fields, &p.Status); err != nil {
				panic(err)
			}
		}
		return p, nil
	})
}

func (k *managed) note(step int, uid string) {
	entry := cachedStatus{Step: step, UID: uid}
	if st, ok := k.manager.GetPodStatus(types.UID(uid)); ok {
		entry.Status = st.DeepCopy()
	}
	k.out.Cached = append(k.out.Cached, entry)
}

func (s sequence) play() *played {
	k := &managed{latency: s.Latency, pods: kubepod.NewBasicPodManager(), seen: map[types.UID]*v1.Pod{}, out: &played{}}
	k.a = newAPI(1, func(*rand.Rand) time.Duration { return 0 })
	client, err := kubernetes.NewForConfigAndClient(&rest.Config{Host: "http://virtual", QPS: -1, UserAgent: "kubelet", ContentConfig: rest.ContentConfig{ContentType: "application/json"}}, &http.Client{Transport: k})
	if err != nil {
		panic(err)
	}
	for _, raw := range s.Pods {
		p := read[v1.Pod](raw)
		if p.Annotations[kubetypes.ConfigSourceAnnotationKey] == "file" && !kubetypes.IsMirrorPod(p) {
			k.take(p)
			continue
		}
		k.store(p)
		k.take(p)
	}
	k.a.onWrite = append(k.a.onWrite, func(w write) {
		if w.old != w.new {
			k.watch(w, s.Lag)
		}
	})
	k.manager = invoke(status.NewManager, client, k.pods, k, kubeletutil.NewPodStartupLatencyTracker(), "")[0].Interface().(status.Manager)
	time.Sleep(time.Until(time.Now().Truncate(time.Minute).Add(time.Minute)))
	k.t0 = time.Now()
	k.out.T0 = k.t0
	k.a.t0 = k.t0
	invoke(k.manager.Start, context.Background())
	for i, step := range s.Steps {
		time.Sleep(time.Until(k.t0.Add(step.At)))
		k.step(step)
		if step.UID != "" {
			k.note(i, step.UID)
		}
		synctest.Wait()
	}
	time.Sleep(time.Until(k.t0.Add(s.End)))
	for uid := range k.seen {
		k.note(-1, string(uid))
	}
	invoke(k.manager.RemoveOrphanedStatuses, klog.Background(), map[types.UID]bool{}) // its ticks find nothing from now on
	k.mu.Lock()
	defer k.mu.Unlock()
	out := k.out
	k.out = &played{} // a batch may be on its way
	return out
}

// playAll plays a list one after the other; the status managers of earlier sequences cannot be stopped.
func playAll[A any, P interface{ play() A }](in, out string) {
	raw, err := os.ReadFile(in)
	if err != nil {
		panic(err)
	}
	var answers []A
	for _, one := range *read[[]P](raw) {
		answers = append(answers, one.play())
	}
	b, err := json.Marshal(answers)
	if err != nil {
		panic(err)
	}
	if err := os.WriteFile(out, b, 0o644); err != nil {
		panic(err)
	}
}
