// real-controllers plays a Scenario with Kubernetes' own controllers on virtual time, and writes
// what they did as a Timeline: see ../README.md.
package main

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"math/rand"
	"net/http"
	"os"
	"runtime"
	"sort"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"go.yaml.in/yaml/v3"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/client-go/informers"
	coreinformers "k8s.io/client-go/informers/core/v1"
	"k8s.io/client-go/kubernetes"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/flowcontrol"
	"k8s.io/klog/v2"
	"k8s.io/kubernetes/pkg/controller/daemon"
	"k8s.io/kubernetes/pkg/controller/deployment"
	"k8s.io/kubernetes/pkg/controller/disruption"
	"k8s.io/kubernetes/pkg/controller/job"
	"k8s.io/kubernetes/pkg/controller/nodelifecycle"
	"k8s.io/kubernetes/pkg/controller/podgc"
	"k8s.io/kubernetes/pkg/controller/replicaset"
	"k8s.io/kubernetes/pkg/controller/replication"
	"k8s.io/kubernetes/pkg/controller/statefulset"
	"k8s.io/kubernetes/pkg/controller/tainteviction"
)

type targets struct {
	Nodes    []string
	Selector string
}

type event struct {
	At      string
	Kubelet *struct {
		targets
		Nodes      []string
		Selector   string
		Heartbeats string
		Conditions map[string]json.RawMessage
	}
	Taint *struct {
		Nodes       []string
		Selector    string
		Add, Remove []string
	}
	Lease *struct {
		Nodes    []string
		Selector string
		Touched  bool
	}
	Controllers      *struct{ Leases string }
	Cordon, Uncordon *targets
	Drain            *drainCommand
	Apply            json.RawMessage
	Delete           *struct{ Kind, Name, Namespace string }
	at               time.Duration
}

type scenario struct {
	name                      string
	flags                     map[string]string
	controllers               map[string]bool
	duration                  time.Duration
	start                     time.Time
	renewEvery, phase, report time.Duration
	podStart, podStop         time.Duration
	objects                   []json.RawMessage
	events                    []event
	failing                   []failing
	failingReads              []failing
	period, grace, startup    time.Duration
	rate, second, unhealthy   float32
	large                     int32
	terminated                int
	notReadySecs, unreachSecs int64
}

func duration(s, def string) time.Duration {
	if s == "" {
		s = def
	}
	d, err := time.ParseDuration(s)
	if err != nil {
		panic(err)
	}
	return d
}

func readScenario(path string) *scenario {
	b, err := os.ReadFile(path)
	if err != nil {
		panic(err)
	}
	var doc struct {
		Metadata struct{ Name string }
		Spec     struct {
			Profile, Duration, Time, Start string
			Flags                          map[string]any
			Controllers                    []string
			Kubelet                        map[string]any
			Objects                        []json.RawMessage
			Events                         []event
			FailingWrites, FailingReads    []failing
			Generate, Snapshot             any
		}
	}
	var tree any // YAML 1.2, as PyYAML nearly reads it: a zone called y is no boolean
	if err := yaml.Unmarshal(b, &tree); err != nil {
		panic(err)
	}
	if b, err = json.Marshal(tree); err != nil {
		panic(err)
	}
	if err := json.Unmarshal(b, &doc); err != nil {
		panic(err)
	}
	if doc.Spec.Generate != nil || doc.Spec.Snapshot != nil || doc.Spec.Start == "join" {
		panic("generate, snapshot and start: join are not played here")
	}
	if p := doc.Spec.Profile; p != "" && p != minor() {
		panic("the scenario's profile is " + p + ", and these are the controllers of " + release)
	}
	s := &scenario{name: doc.Metadata.Name, flags: map[string]string{}, controllers: map[string]bool{}, duration: duration(doc.Spec.Duration, "20m"), objects: doc.Spec.Objects, events: doc.Spec.Events}
	s.start, err = time.Parse(time.RFC3339, firstOf(doc.Spec.Time, "2026-01-01T00:00:00Z"))
	if err != nil {
		panic(err)
	}
	for k, v := range doc.Spec.Flags {
		s.flags[k] = fmt.Sprint(v)
	}
	for _, c := range doc.Spec.Controllers {
		s.controllers[c] = true
	}
	if len(s.controllers) == 0 {
		s.controllers = map[string]bool{"node-lifecycle": true, "taint-eviction": true, "daemonset": true, "pod-gc": true}
	}
	k := map[string]string{}
	for n, v := range doc.Spec.Kubelet {
		k[n] = fmt.Sprint(v)
	}
	s.renewEvery, s.phase, s.report = duration(k["leaseRenewInterval"], "10s"), duration(k["leaseRenewPhase"], "0s"), duration(k["nodeStatusReportInterval"], "5m")
	s.podStart, s.podStop = duration(k["podStartDuration"], "2s"), duration(k["podStopDuration"], "-1s")
	for i := range s.events {
		s.events[i].at = duration(s.events[i].At, "0s")
	}
	sort.SliceStable(s.events, func(i, j int) bool { return s.events[i].at < s.events[j].at })
	s.failing, s.failingReads = doc.Spec.FailingWrites, doc.Spec.FailingReads
	for _, entries := range [][]failing{s.failing, s.failingReads} {
		for i := range entries {
			entries[i].read()
		}
	}
	num := func(name, def string) float32 {
		f, err := strconv.ParseFloat(firstOf(s.flags[name], def), 32)
		if err != nil {
			panic(err)
		}
		return float32(f)
	}
	s.period, s.grace, s.startup = duration(s.flags["node-monitor-period"], "5s"), duration(s.flags["node-monitor-grace-period"], "50s"), duration(s.flags["node-startup-grace-period"], "60s")
	s.rate, s.second, s.unhealthy, s.large = num("node-eviction-rate", "0.1"), num("secondary-node-eviction-rate", "0.01"), num("unhealthy-zone-threshold", "0.55"), int32(num("large-cluster-size-threshold", "50"))
	s.terminated = int(num("terminated-pod-gc-threshold", "12500"))
	s.notReadySecs, s.unreachSecs = int64(num("default-not-ready-toleration-seconds", "300")), int64(num("default-unreachable-toleration-seconds", "300"))
	return s
}

// has says whether the scenario makes an object of the kind.
func (s *scenario) has(kind string) bool {
	is := func(raw json.RawMessage) bool {
		var head struct{ Kind string }
		return json.Unmarshal(raw, &head) == nil && head.Kind == kind
	}
	for _, raw := range s.objects {
		if is(raw) {
			return true
		}
	}
	for _, e := range s.events {
		if e.Apply != nil && is(e.Apply) {
			return true
		}
	}
	return false
}

// release is the version of Kubernetes whose controllers these are, set by the build.
var release = "v1.37.2"

// minor is the profile of the release: v1.37.
func minor() string { return release[:strings.LastIndex(release, ".")] }

func firstOf(a, b string) string {
	if a != "" {
		return a
	}
	return b
}

// driftingNodes makes each monitor pass begin a little late, as a real one does: its first step is to list the nodes.
// The nodes of a pass come in the order of their names, not of a map, and orderedPods lets them reach the zones' queues in that order.
type driftingNodes struct {
	coreinformers.NodeInformer
	p *pass
}

func (d driftingNodes) Lister() corelisters.NodeLister {
	return driftingLister{d.NodeInformer.Lister(), d.p}
}

type driftingLister struct {
	corelisters.NodeLister
	p *pass
}

type pass struct {
	drift time.Duration
	order bool
	mu    sync.Mutex
	began time.Time
	rank  map[string]int
}

func (d driftingLister) List(s labels.Selector) ([]*v1.Node, error) {
	found, err := d.NodeLister.List(s)
	if d.p.drift > 0 {
		time.Sleep(d.p.drift)
	}
	if d.p.order {
		sort.Slice(found, func(i, j int) bool { return found[i].Name < found[j].Name })
		d.p.mu.Lock()
		d.p.began, d.p.rank = time.Now(), map[string]int{}
		for i, n := range found {
			d.p.rank[n.Name] = i
		}
		d.p.mu.Unlock()
	}
	return found, err
}

type orderedPods struct {
	coreinformers.PodInformer
	p *pass
}

func (o orderedPods) Informer() cache.SharedIndexInformer {
	return orderedInformer{o.PodInformer.Informer(), o.p}
}

type orderedInformer struct {
	cache.SharedIndexInformer
	p *pass
}

func (o orderedInformer) GetIndexer() cache.Indexer {
	return orderedIndexer{o.SharedIndexInformer.GetIndexer(), o.p}
}

type orderedIndexer struct {
	cache.Indexer
	p *pass
}

// ByIndex is what the monitor asks for a node's pods, just before it puts the node into its zone's queue.
func (o orderedIndexer) ByIndex(index, node string) ([]interface{}, error) {
	if o.p.order {
		o.p.mu.Lock()
		at := o.p.began.Add(time.Duration(o.p.rank[node]+1) * time.Microsecond)
		o.p.mu.Unlock()
		if d := time.Until(at); d > 0 {
			time.Sleep(d)
		}
	}
	return o.Indexer.ByIndex(index, node)
}

var (
	seed          = flag.Int64("seed", 1, "of the names and of the watches' lag")
	lagMin        = flag.Duration("lag-min", time.Millisecond, "the least time from a write until watchers see it")
	lagMax        = flag.Duration("lag-max", 4*time.Millisecond, "the longest")
	writeMin      = flag.Duration("write-min", 0, "the least time that a write takes the controllers; node-lifecycle's take none")
	writeMax      = flag.Duration("write-max", 0, "the longest")
	drift         = flag.Duration("drift", time.Millisecond, "by how much each monitor pass begins late")
	order         = flag.Bool("order", true, "nodes of one monitor pass are taken in the order of their names; else by chance, as upstream")
	quarant       = flag.Duration("quarantine", 40*time.Second+200*time.Millisecond, "of pod-gc; upstream's 40s end in the very moment of a run, and it is chance whether that run takes notice")
	admission     = flag.Bool("admission", true, "the plugin DefaultTolerationSeconds acts on pods that are made or changed")
	collect       = flag.Bool("gc", true, "what a deleted DaemonSet owned is deleted")
	verbose       = flag.Int("log", -1, "log of the controllers on stderr, at this verbosity")
	dump          = flag.String("dump", "", "a file for the objects that there are at -dump-at, as kubectl get -o json prints them")
	dumpAt        = flag.Duration("dump-at", 0, "when, after the start")
	kubectlStarts = flag.Duration("kubectl-starts", 60*time.Millisecond, "from the start of kubectl to its first request")
	kubectlTakes  = flag.Duration("kubectl-takes", 10*time.Millisecond, "a request of kubectl's")
	statuses      = flag.Bool("status", false, "play sequences of a kubelet's status manager instead of a scenario")
	schedules     = flag.Bool("schedule", false, "say where the scheduler may put the pods of clusters instead")
	evictions     = flag.Bool("evictions", false, "play single evictions instead of a scenario")
	limit         = flag.Duration("limit", 5*time.Minute, "real time after which a run is given up")
)

// playSchedules is the mode -schedule; nil in a release whose scheduler schedule.go does not know.
var playSchedules func(in, out string)

func play(s *scenario, out string) {
	cpu := func() float64 {
		var r syscall.Rusage
		syscall.Getrusage(syscall.RUSAGE_SELF, &r)
		return float64(r.Utime.Sec+r.Stime.Sec) + float64(r.Utime.Usec+r.Stime.Usec)/1e6
	}
	inBubble(func() {
		t0 := s.start
		time.Sleep(time.Until(t0.Add(-2 * time.Second)))
		a := newAPI(*seed, func(r *rand.Rand) time.Duration {
			return *lagMin + time.Duration(r.Int63n(int64(*lagMax-*lagMin)+1))
		})
		a.t0, a.failing, a.reads = t0, s.failing, s.failingReads
		if *writeMax > 0 {
			a.slow = func() time.Duration {
				return (*writeMin + time.Duration(a.rnd.Int63n(int64(*writeMax-*writeMin)+1))) / 2
			}
		}
		if *admission {
			a.admit = func(p *v1.Pod) { defaultTolerations(p, s.notReadySecs, s.unreachSecs) }
		}
		w := newWorld(a, s, *collect)
		a.evictions = newEvictions(a)
		podNodes := map[string]string{}
		note := func(o metav1.Object) {
			if p, is := o.(*v1.Pod); is && p.Spec.NodeName != "" {
				podNodes[key(p.Namespace, p.Name)] = p.Spec.NodeName
			}
		}
		for _, raw := range s.objects {
			r, o := w.object(raw)
			if n, is := o.(*v1.Node); is {
				for i := range n.Status.Conditions {
					c := &n.Status.Conditions[i]
					if c.LastHeartbeatTime.IsZero() {
						c.LastHeartbeatTime = metav1.Time{Time: stamp().Add(-2 * time.Second)} // when it was made
					}
					if c.LastTransitionTime.IsZero() {
						c.LastTransitionTime = stamp()
					}
				}
			}
			note(o)
			if _, err := a.create(me, r, o, true); err != nil {
				panic(err)
			}
		}
		for _, e := range s.events {
			if e.Apply != nil {
				_, o := w.object(e.Apply)
				note(o)
			}
		}
		rec := &recorder{t0: t0, records: []record{}}
		w.rec, a.onAnswer = rec, rec.note
		w.begin(t0)
		a.mu.Lock()
		a.onWrite = append(a.onWrite, rec.written)
		a.mu.Unlock()
		ctx := klog.NewContext(context.Background(), klog.Background())
		client := func(name string) *kubernetes.Clientset {
			c, err := kubernetes.NewForConfigAndClient(&rest.Config{Host: "http://virtual", QPS: -1, UserAgent: name, ContentConfig: rest.ContentConfig{ContentType: "application/json", AcceptContentTypes: "application/json"}},
				&http.Client{Transport: wire{a, name}})
			if err != nil {
				panic(err)
			}
			return c
		}
		// No resync comes within a scenario. None at all has the reflectors of releases before v1.34 wait on a channel
		// from outside the bubble, whose clock then stands.
		f := informers.NewSharedInformerFactory(client("informers"), 10000*time.Hour)
		core := f.Core().V1()
		var runs []func()
		p := &pass{drift: *drift, order: *order}
		must := func(err error) {
			if err != nil {
				panic(err)
			}
		}
		if s.controllers["node-lifecycle"] {
			c, err := nodelifecycle.NewNodeLifecycleController(ctx, f.Coordination().V1().Leases(), orderedPods{core.Pods(), p}, driftingNodes{core.Nodes(), p}, f.Apps().V1().DaemonSets(), client("node-lifecycle"), s.period, s.startup, s.grace, s.rate, s.second, s.large, s.unhealthy)
			must(err)
			runs = append(runs, func() { c.Run(ctx) })
		}
		if s.controllers["taint-eviction"] {
			c, err := tainteviction.New(ctx, client("taint-eviction"), core.Pods(), core.Nodes(), "taint-eviction-controller")
			must(err)
			runs = append(runs, func() { c.Run(ctx) })
		}
		if s.controllers["daemonset"] {
			c, err := daemon.NewDaemonSetsController(ctx, f.Apps().V1().DaemonSets(), f.Apps().V1().ControllerRevisions(), core.Pods(), core.Nodes(), client("daemonset"), flowcontrol.NewBackOff(time.Second, 15*time.Minute))
			must(err)
			runs = append(runs, func() { c.Run(ctx, 2) })
		}
		if s.has("Deployment") {
			c, err := deployment.NewDeploymentController(ctx, f.Apps().V1().Deployments(), f.Apps().V1().ReplicaSets(), core.Pods(), client("deployment"))
			must(err)
			r := replicaset.NewReplicaSetController(ctx, f.Apps().V1().ReplicaSets(), core.Pods(), client("replicaset"), replicaset.BurstReplicas)
			runs = append(runs, func() { c.Run(ctx, 5) }, func() { r.Run(ctx, 5) })
		}
		if s.has("ReplicaSet") && !s.has("Deployment") {
			c := replicaset.NewReplicaSetController(ctx, f.Apps().V1().ReplicaSets(), core.Pods(), client("replicaset"), replicaset.BurstReplicas)
			runs = append(runs, func() { c.Run(ctx, 5) })
		}
		if s.has("ReplicationController") {
			c := replication.NewReplicationManager(ctx, core.Pods(), core.ReplicationControllers(), client("replication"), replication.BurstReplicas)
			runs = append(runs, func() { c.Run(ctx, 5) })
		}
		if s.has("Job") {
			made := invoke(job.NewController, ctx, client("job"), core.Pods(), f.Batch().V1().Jobs())
			if err, is := made[1].Interface().(error); is {
				panic(err)
			}
			runs = append(runs, func() { runController(ctx, made[0].Interface()) })
		}
		if s.has("PodDisruptionBudget") {
			c := client("disruption")
			d := disruption.NewDisruptionController(ctx, core.Pods(), f.Policy().V1().PodDisruptionBudgets(), core.ReplicationControllers(), f.Apps().V1().ReplicaSets(), f.Apps().V1().Deployments(), f.Apps().V1().StatefulSets(), c, mapper(), noScales{}, c.Discovery())
			runs = append(runs, func() { runController(ctx, d) })
		}
		if s.has("StatefulSet") {
			c := statefulset.NewStatefulSetController(ctx, core.Pods(), f.Apps().V1().StatefulSets(), core.PersistentVolumeClaims(), f.Apps().V1().ControllerRevisions(), client("statefulset"))
			runs = append(runs, func() { c.Run(ctx, 5) })
		}
		if s.controllers["pod-gc"] {
			c := podgc.NewPodGCInternal(ctx, client("pod-gc"), core.Pods(), core.Nodes(), s.terminated, 20*time.Second, *quarant)
			runs = append(runs, func() { c.Run(ctx) })
		}
		f.Start(ctx.Done())
		f.WaitForCacheSync(ctx.Done())
		time.Sleep(time.Until(t0))
		for _, r := range runs {
			go r()
		}
		if *dump != "" {
			go func() {
				time.Sleep(time.Until(t0.Add(*dumpAt)))
				if err := os.WriteFile(*dump, a.everything(), 0o644); err != nil {
					panic(err)
				}
			}()
		}
		for _, e := range s.events {
			if e.at > s.duration {
				break
			}
			time.Sleep(time.Until(t0.Add(e.at)))
			w.play(e)
		}
		time.Sleep(time.Until(t0.Add(s.duration)))
		a.mu.Lock()
		b := rec.document(s, a, podNodes, map[string]any{"cpu_seconds": cpu(), "requests": a.requests})
		if err := os.WriteFile(out, b, 0o644); err != nil {
			panic(err)
		}
	})
}

// inBubble plays on virtual time and ends the process: what runs there need not be stopped. Real time has a limit.
func inBubble(f func()) {
	go func() {
		time.Sleep(*limit)
		fmt.Fprintln(os.Stderr, "no end within", *limit)
		buf := make([]byte, 1<<22)
		os.Stderr.Write(buf[:runtime.Stack(buf, true)])
		os.Exit(3)
	}()
	testing.Main(func(_, _ string) (bool, error) { return true, nil }, []testing.InternalTest{{Name: "scenario", F: func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			f()
			os.Exit(0)
		})
	}}}, nil, nil) // does not return
}

func defaultTolerations(p *v1.Pod, notReady, unreachable int64) {
	for _, k := range []struct {
		key  string
		secs int64
	}{{v1.TaintNodeNotReady, notReady}, {v1.TaintNodeUnreachable, unreachable}} {
		has := false
		for _, t := range p.Spec.Tolerations {
			has = has || ((t.Key == "" || t.Key == k.key) && (t.Effect == "" || t.Effect == v1.TaintEffectNoExecute))
		}
		if !has {
			p.Spec.Tolerations = append(p.Spec.Tolerations, v1.Toleration{Key: k.key, Operator: v1.TolerationOpExists, Effect: v1.TaintEffectNoExecute, TolerationSeconds: &k.secs})
		}
	}
}

func main() {
	os.Setenv("KUBE_FEATURE_WatchListClient", "false")
	testing.Init()
	flag.Usage = func() {
		fmt.Fprintln(os.Stderr, "usage: real-controllers [flags] SCENARIO.yaml OUT.json")
		flag.PrintDefaults()
	}
	flag.Parse()
	if flag.NArg() != 2 {
		flag.Usage()
		os.Exit(2)
	}
	klog.LogToStderr(false)
	kf := flag.NewFlagSet("klog", flag.ContinueOnError)
	klog.InitFlags(kf)
	kf.Set("logtostderr", "false")
	if *verbose < 0 {
		kf.Set("stderrthreshold", "FATAL")
		klog.SetOutput(io.Discard)
		utilruntime.ErrorHandlers = nil
	} else {
		var l klog.Level
		l.Set(strconv.Itoa(*verbose))
		klog.SetOutput(os.Stderr)
		utilruntime.ErrorHandlers = utilruntime.ErrorHandlers[:1] // the second one sleeps while it holds a lock
	}
	if *statuses {
		inBubble(func() { playAll[*played, sequence](flag.Arg(0), flag.Arg(1)) })
	}
	if *evictions {
		inBubble(func() { playAll[evictionAnswer, evictionCase](flag.Arg(0), flag.Arg(1)) })
	}
	if *schedules {
		inBubble(func() { playSchedules(flag.Arg(0), flag.Arg(1)) })
	}
	play(readScenario(flag.Arg(0)), flag.Arg(1))
}
