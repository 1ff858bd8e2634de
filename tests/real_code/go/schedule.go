// The mode -schedule: where Kubernetes' scheduler may put a pod, and whom it would preempt for it.
// Built with the releases whose scheduler framework it knows: .ci/real-controllers leaves it out of others.
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/sets"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes/fake"
	clientscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/tools/events"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler"
	"k8s.io/kubernetes/pkg/scheduler/apis/config"
	internalcache "k8s.io/kubernetes/pkg/scheduler/backend/cache"
	"k8s.io/kubernetes/pkg/scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins/defaultpreemption"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins/feature"
	"k8s.io/kubernetes/pkg/scheduler/profile"
)

func init() {
	playSchedules = scheduleAll
	signal.Notify(make(chan os.Signal, 1), syscall.SIGUSR2) // so that the scheduler's debugger does not start Go's listener in the bubble
}

// choicesOfCandidate is how often a candidate is chosen: of equal ones upstream takes the first of a map.
const choicesOfCandidate = 40

// schedulesAt is the time in all clusters: a pod that has not started counts as started now.
var schedulesAt = time.Date(2026, 1, 1, 0, 15, 0, 0, time.UTC)

// verdict is what the scheduler would do with one pod now.
type verdict struct {
	Feasible []string                    `json:"feasible"`
	Best     []string                    `json:"best"`
	Scores   map[string]map[string]int64 `json:"scores"`
	Message  string                      `json:"message"`
	Eligible bool                        `json:"eligible"`
	Victims  map[string][]string         `json:"victims"` // of each candidate that may be chosen
}

// scheduleAll reads clusters, each a list of objects, and writes for each the verdicts of its pods without a node, by namespace/name.
func scheduleAll(in, out string) {
	b, err := os.ReadFile(in)
	must(err)
	var clusters [][]json.RawMessage
	must(json.Unmarshal(b, &clusters))
	time.Sleep(time.Until(schedulesAt))
	verdicts := make([]map[string]verdict, len(clusters))
	for i, objects := range clusters {
		verdicts[i] = schedule(objects)
	}
	b, err = json.Marshal(verdicts)
	must(err)
	must(os.WriteFile(out, b, 0o644))
}

func must(err error) {
	if err != nil {
		panic(err)
	}
}

func schedule(raw []json.RawMessage) map[string]verdict {
	var objects []runtime.Object
	for _, b := range raw {
		o, _, err := clientscheme.Codecs.UniversalDeserializer().Decode(b, nil, nil)
		must(err)
		clientscheme.Scheme.Default(o)
		pod, ok := o.(*v1.Pod)
		if ok && (pod.Status.Phase == v1.PodSucceeded || pod.Status.Phase == v1.PodFailed) {
			continue // the scheduler's informer asks for the others; the fake client knows no field selectors
		}
		objects = append(objects, o)
	}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	client := fake.NewClientset(objects...)
	f := informers.NewSharedInformerFactory(client, 0)
	recorders := profile.NewRecorderFactory(events.NewBroadcaster(&events.EventSinkImpl{Interface: client.EventsV1()}))
	s, err := scheduler.New(ctx, client, f, nil, recorders)
	must(err)
	plugins := s.Profiles[v1.DefaultSchedulerName]
	snapshot := plugins.SnapshotSharedLister().(*internalcache.Snapshot)
	args := &config.DefaultPreemptionArgs{MinCandidateNodesPercentage: 10, MinCandidateNodesAbsolute: 100}
	preemption, err := defaultpreemption.New(ctx, args, plugins, feature.NewSchedulerFeaturesFromGates(utilfeature.DefaultFeatureGate))
	must(err)
	f.Start(ctx.Done())
	f.WaitForCacheSync(ctx.Done())
	synctest.Wait() // until the caches behind the informers have heard of all
	must(s.Cache.UpdateSnapshot(klog.FromContext(ctx), snapshot))
	found := map[string]verdict{}
	for _, o := range objects {
		if pod, ok := o.(*v1.Pod); ok && pod.Spec.NodeName == "" && pod.DeletionTimestamp == nil {
			found[pod.Namespace+"/"+pod.Name] = judge(ctx, plugins, preemption, snapshot, pod)
		}
	}
	return found
}

// judge follows schedulePod and findNodesThatFitPod, which keep neither all that fit nor their scores.
func judge(ctx context.Context, plugins framework.Framework, preemption *defaultpreemption.DefaultPreemption, snapshot *internalcache.Snapshot, pod *v1.Pod) (v verdict) {
	all, err := snapshot.NodeInfos().List()
	must(err)
	state := framework.NewCycleState()
	diagnosis := framework.Diagnosis{NodeToStatus: framework.NewDefaultNodeToStatus()}
	for _, p := range plugins.PreEnqueuePlugins() {
		if status := p.PreEnqueue(ctx, pod); !status.IsSuccess() {
			v.Message = status.Message()
			return v
		}
	}
	only, status, narrowing := plugins.RunPreFilterPlugins(ctx, state, pod)
	var fit []fwk.NodeInfo
	if status.IsSuccess() {
		filter := func(nodes []fwk.NodeInfo) {
			for _, n := range nodes {
				if !only.AllNodes() && !only.NodeNames.Has(n.Node().Name) {
					continue
				}
				if status := plugins.RunFilterPluginsWithNominatedPods(ctx, state, pod, n); status.IsSuccess() {
					fit = append(fit, n)
				} else {
					diagnosis.NodeToStatus.Set(n.Node().Name, status)
				}
			}
		}
		if !only.AllNodes() {
			diagnosis.NodeToStatus.SetAbsentNodesStatus(fwk.NewStatus(fwk.UnschedulableAndUnresolvable, fmt.Sprintf("node(s) didn't satisfy plugin(s) %v", sets.List(narrowing))))
		}
		if nominated, err := snapshot.Get(pod.Status.NominatedNodeName); err == nil {
			filter([]fwk.NodeInfo{nominated})
		}
		if len(fit) == 0 {
			filter(all)
		}
	} else {
		diagnosis.PreFilterMsg = status.Message()
		diagnosis.NodeToStatus.SetAbsentNodesStatus(status)
	}
	for _, n := range fit {
		v.Feasible = append(v.Feasible, n.Node().Name)
	}
	if len(fit) == 0 {
		v.Message = (&framework.FitError{Pod: pod, NumAllNodes: len(all), Diagnosis: diagnosis}).Error()
		v.preempt(ctx, preemption, snapshot, state, pod, diagnosis.NodeToStatus)
		return v
	}
	v.score(ctx, plugins, state, pod, fit)
	return v
}

func (v *verdict) score(ctx context.Context, plugins framework.Framework, state fwk.CycleState, pod *v1.Pod, fit []fwk.NodeInfo) {
	if len(fit) == 1 {
		v.Best = v.Feasible
		return
	}
	must(plugins.RunPreScorePlugins(ctx, state, pod, fit).AsError())
	scores, status := plugins.RunScorePlugins(ctx, state, pod, fit)
	must(status.AsError())
	most := slices.MaxFunc(scores, func(a, b fwk.NodePluginScores) int { return int(a.TotalScore - b.TotalScore) }).TotalScore
	v.Scores = map[string]map[string]int64{}
	for _, n := range scores {
		if n.TotalScore == most {
			v.Best = append(v.Best, n.Name)
		}
		v.Scores[n.Name] = map[string]int64{}
		for _, p := range n.Scores {
			v.Scores[n.Name][strings.TrimSpace(p.Name)] = p.Score
		}
	}
}

func (v *verdict) preempt(ctx context.Context, preemption *defaultpreemption.DefaultPreemption, snapshot *internalcache.Snapshot, state fwk.CycleState, pod *v1.Pod, nodes *framework.NodeToStatus) {
	if v.Eligible, _ = preemption.PodEligibleToPreemptOthers(ctx, pod, nodes.Get(pod.Status.NominatedNodeName)); !v.Eligible {
		return
	}
	potential, err := nodes.NodesForStatusCode(snapshot.NodeInfos(), fwk.Unschedulable)
	must(err)
	if len(potential) == 0 {
		return
	}
	budgets, err := preemption.Evaluator.PdbLister.List(labels.Everything())
	must(err)
	candidates, _, err := preemption.Evaluator.DryRunPreemption(ctx, state, pod, potential, budgets, 0, int32(len(potential)))
	must(err)
	if len(candidates) == 0 {
		return
	}
	v.Victims = map[string][]string{}
	for range choicesOfCandidate {
		best := preemption.Evaluator.SelectCandidate(ctx, candidates)
		names := []string{}
		for _, victim := range best.Victims().Pods {
			names = append(names, victim.Namespace+"/"+victim.Name)
		}
		slices.Sort(names)
		v.Victims[best.Name()] = names
	}
}
