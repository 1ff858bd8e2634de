package main

// kubectl drain and the eviction subresource: the real command (k8s.io/kubectl/pkg/cmd/drain) with its own client, whose
// evictions the real EvictionREST decides, on the pods of the API server here.

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"math/rand"
	"net/http"
	"reflect"
	"strconv"
	"strings"
	"time"
	"unsafe"

	autoscalingv1 "k8s.io/api/autoscaling/v1"
	v1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	genericapirequest "k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/apiserver/pkg/registry/rest"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/discovery/cached/memory"
	"k8s.io/client-go/kubernetes"
	clientrest "k8s.io/client-go/rest"
	"k8s.io/client-go/scale"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	kubectldrain "k8s.io/kubectl/pkg/cmd/drain"
	cmdutil "k8s.io/kubectl/pkg/cmd/util"
	core "k8s.io/kubernetes/pkg/apis/core"
	corev1 "k8s.io/kubernetes/pkg/apis/core/v1"
	"k8s.io/kubernetes/pkg/apis/policy"
	podstorage "k8s.io/kubernetes/pkg/registry/core/pod/storage"
)

const kubectl = "kubectl"

// discovered is what the discovery of groups answers: that there are evictions, and that Jobs have no scale.
var discovered = map[string]string{
	"/api/v1":        `{"kind":"APIResourceList","apiVersion":"v1","groupVersion":"v1","resources":[{"name":"pods/eviction","singularName":"","namespaced":true,"group":"policy","version":"v1","kind":"Eviction","verbs":["create"]}]}`,
	"/apis/batch/v1": `{"kind":"APIResourceList","apiVersion":"v1","groupVersion":"batch/v1","resources":[{"name":"jobs","singularName":"job","namespaced":true,"kind":"Job","verbs":["get"]}]}`,
}

// mapper knows the resources that kubectl and the disruption controller ask for.
func mapper() meta.RESTMapper {
	m := meta.NewDefaultRESTMapper([]schema.GroupVersion{v1.SchemeGroupVersion})
	m.Add(v1.SchemeGroupVersion.WithKind("Node"), meta.RESTScopeRoot)
	m.Add(schema.GroupVersionKind{Group: "batch", Version: "v1", Kind: "Job"}, meta.RESTScopeNamespace)
	return m
}

// noScales are the scales of kinds that have none.
type noScales struct{ scale.ScaleInterface }

func (noScales) Scales(string) scale.ScaleInterface { return noScales{} }

func (noScales) Get(_ context.Context, resource schema.GroupResource, name string, _ metav1.GetOptions) (*autoscalingv1.Scale, error) {
	return nil, apierrors.NewNotFound(resource, name)
}

// runController runs a controller; that of budgets is told from v1.34 on how many workers it has.
func runController(ctx context.Context, controller any) {
	invoke(reflect.ValueOf(controller).MethodByName("Run").Interface(), ctx, 5)
}

// --- the eviction subresource ---

// evictedPods are the pods of the API server as the eviction subresource uses its storage.
type evictedPods struct {
	rest.StandardStorage
	a *api
}

func internal(p *v1.Pod) *core.Pod {
	out := &core.Pod{}
	if err := corev1.Convert_v1_Pod_To_core_Pod(p.DeepCopy(), out, nil); err != nil {
		panic(err)
	}
	return out
}

// orNil is the error as the registry's callers know it.
func orNil(e *apiError) error {
	if e == nil {
		return nil
	}
	return &apierrors.StatusError{ErrStatus: metav1.Status{Status: metav1.StatusFailure, Code: int32(e.code), Reason: e.reason, Message: e.text}}
}

func (s evictedPods) Get(ctx context.Context, name string, _ *metav1.GetOptions) (runtime.Object, error) {
	s.a.mu.Lock()
	defer s.a.mu.Unlock()
	o, ok := s.a.get("pods", genericapirequest.NamespaceValue(ctx), name)
	if !ok {
		return nil, apierrors.NewNotFound(core.Resource("pods"), name)
	}
	return internal(o.(*v1.Pod)), nil
}

func (s evictedPods) Update(ctx context.Context, name string, info rest.UpdatedObjectInfo, _ rest.ValidateObjectFunc, _ rest.ValidateObjectUpdateFunc, _ bool, _ *metav1.UpdateOptions) (runtime.Object, bool, error) {
	var failed error
	o, e := s.a.change("eviction", "update", "pods", genericapirequest.NamespaceValue(ctx), name, "status", write{}, func(old entry) (metav1.Object, *apiError) {
		made, err := info.UpdatedObject(ctx, internal(old.obj.(*v1.Pod)))
		if err != nil {
			failed = err
			return nil, fail(409, metav1.StatusReasonConflict, "%v", err)
		}
		out := &v1.Pod{}
		if err := corev1.Convert_core_Pod_To_v1_Pod(made.(*core.Pod), out, nil); err != nil {
			panic(err)
		}
		return out, nil
	})
	if failed != nil {
		return nil, false, failed
	}
	if e != nil {
		return nil, false, orNil(e)
	}
	return internal(o.(*v1.Pod)), false, nil
}

func (s evictedPods) Delete(ctx context.Context, name string, _ rest.ValidateObjectFunc, options *metav1.DeleteOptions) (runtime.Object, bool, error) {
	_, e := s.a.remove("eviction", "pods", genericapirequest.NamespaceValue(ctx), name, *options)
	return nil, false, orNil(e)
}

// newEvictions is the subresource on these pods: NewStorage, which makes it, would want etcd.
func newEvictions(a *api) *podstorage.EvictionREST {
	client, err := kubernetes.NewForConfigAndClient(&clientrest.Config{Host: "http://virtual", QPS: -1, ContentConfig: clientrest.ContentConfig{ContentType: "application/json"}}, &http.Client{Transport: wire{a, "eviction"}})
	if err != nil {
		panic(err)
	}
	e := &podstorage.EvictionREST{}
	set := func(name string, value any) {
		field := reflect.ValueOf(e).Elem().FieldByName(name)
		reflect.NewAt(field.Type(), unsafe.Pointer(field.UnsafeAddr())).Elem().Set(reflect.ValueOf(value))
	}
	set("store", evictedPods{a: a})
	set("podDisruptionBudgetClient", client.PolicyV1())
	return e
}

// evict is the answer of the subresource.
func (a *api) evict(ctx context.Context, asked *policy.Eviction) metav1.Status {
	answer, err := a.evictions.Create(genericapirequest.WithNamespace(ctx, asked.Namespace), asked.Name, asked, nil, &metav1.CreateOptions{})
	var status metav1.Status
	var known apierrors.APIStatus
	switch {
	case errors.As(err, &known):
		status = known.Status()
	case err != nil:
		status = metav1.Status{Status: metav1.StatusFailure, Code: 500, Message: err.Error()}
	default:
		status = *answer.(*metav1.Status)
	}
	if status.Code == 0 {
		status.Code = 201
	}
	return status
}

func (w wire) evict(r *http.Request, t target, body []byte) (*http.Response, error) {
	var asked policyv1.Eviction
	if err := json.Unmarshal(body, &asked); err != nil {
		return nil, err
	}
	w.a.mu.Lock()
	pod, _ := w.a.get("pods", t.ns, t.name)
	w.a.mu.Unlock()
	status := w.a.evict(r.Context(), &policy.Eviction{ObjectMeta: metav1.ObjectMeta{Name: t.name, Namespace: t.ns}, DeleteOptions: asked.DeleteOptions})
	if p, is := pod.(*v1.Pod); is {
		w.a.answered(p, status)
	}
	status.TypeMeta = metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}
	b, _ := json.Marshal(status)
	response, err := w.raw(r, int(status.Code), b)
	if d := status.Details; d != nil && d.RetryAfterSeconds > 0 {
		response.Header.Set("Retry-After", strconv.Itoa(int(d.RetryAfterSeconds)))
	}
	return response, err
}

// evictionCase is a pod that is evicted, with the budgets of its namespace in whatever state; -evictions plays a list.
type evictionCase struct {
	Pod     json.RawMessage
	Budgets []json.RawMessage
}

type evictionAnswer struct {
	Status  metav1.Status                        `json:"status"`
	Budgets []policyv1.PodDisruptionBudgetStatus `json:"budgets"` // after it
}

func (c evictionCase) play() (out evictionAnswer) {
	a := newAPI(1, func(*rand.Rand) time.Duration { return 0 })
	a.t0, a.evictions = time.Now(), newEvictions(a)
	pod := read[v1.Pod](c.Pod)
	a.mu.Lock()
	a.put("pods", pod, nil)
	var names []string
	for _, raw := range c.Budgets {
		budget := read[policyv1.PodDisruptionBudget](raw)
		names = append(names, budget.Name)
		a.put("poddisruptionbudgets", budget, nil)
	}
	a.mu.Unlock()
	out.Status = a.evict(context.Background(), &policy.Eviction{ObjectMeta: metav1.ObjectMeta{Name: pod.Name, Namespace: pod.Namespace}, DeleteOptions: &metav1.DeleteOptions{}})
	for _, name := range names {
		budget, _ := a.get("poddisruptionbudgets", pod.Namespace, name)
		out.Budgets = append(out.Budgets, budget.(*policyv1.PodDisruptionBudget).Status)
	}
	return out
}

// --- kubectl ---

type drainCommand struct {
	Nodes                                                        []string
	Selector, PodSelector                                        string
	Force, IgnoreDaemonSets, DeleteEmptyDirData, DisableEviction bool
	GracePeriod, Timeout, SkipWaitForDeleteTimeout               string
}

func (d *drainCommand) arguments(nodes []string) []string {
	out := append([]string(nil), nodes...)
	for name, is := range map[string]bool{"force": d.Force, "ignore-daemonsets": d.IgnoreDaemonSets, "delete-emptydir-data": d.DeleteEmptyDirData, "disable-eviction": d.DisableEviction} {
		out = append(out, fmt.Sprintf("--%s=%t", name, is))
	}
	whole := func(s string) int { return int(math.Round(duration(s, "0s").Seconds())) }
	if d.GracePeriod != "" {
		out = append(out, fmt.Sprintf("--grace-period=%d", whole(d.GracePeriod)))
	}
	if d.Timeout != "" {
		out = append(out, "--timeout="+d.Timeout)
	}
	if d.SkipWaitForDeleteTimeout != "" {
		out = append(out, fmt.Sprintf("--skip-wait-for-delete-timeout=%d", whole(d.SkipWaitForDeleteTimeout)))
	}
	if d.PodSelector != "" {
		out = append(out, "--pod-selector="+d.PodSelector)
	}
	return out
}

// virtualConfig leads kubectl to the API server of the bubble.
type virtualConfig struct{ a *api }

func (c virtualConfig) ToRESTConfig() (*clientrest.Config, error) {
	return &clientrest.Config{Host: "http://virtual", Transport: wire{c.a, kubectl}, ContentConfig: clientrest.ContentConfig{ContentType: "application/json", AcceptContentTypes: "application/json"}}, nil
}

func (c virtualConfig) ToDiscoveryClient() (discovery.CachedDiscoveryInterface, error) {
	config, _ := c.ToRESTConfig()
	client, err := discovery.NewDiscoveryClientForConfig(config)
	return memory.NewMemCacheClient(client), err
}

func (virtualConfig) ToRESTMapper() (meta.RESTMapper, error) { return mapper(), nil }

func (virtualConfig) ToRawKubeConfigLoader() clientcmd.ClientConfig {
	config := clientcmdapi.NewConfig()
	config.Clusters["virtual"] = &clientcmdapi.Cluster{Server: "http://virtual"}
	config.Contexts["virtual"] = &clientcmdapi.Context{Cluster: "virtual"}
	config.CurrentContext = "virtual"
	return clientcmd.NewDefaultClientConfig(*config, &clientcmd.ConfigOverrides{})
}

// lines hears what kubectl prints.
type lines struct {
	hear func(line string)
}

func (l lines) Write(b []byte) (int, error) {
	for _, line := range strings.Split(strings.TrimRight(string(b), "\n"), "\n") {
		l.hear(line)
	}
	return len(b), nil
}

type exits struct {
	code int
	why  string
}

// drain runs kubectl drain. What it says of a node's end is a record, and so is its exit.
func (w *world) drain(d *drainCommand, nodes []string) {
	time.Sleep(*kubectlStarts)
	heard := lines{func(line string) {
		if name, is := strings.CutPrefix(line, "node/"); is {
			if name, is = strings.CutSuffix(name, " drained"); is {
				w.rec.note("Node", "", name, "Drained", map[string]any{})
			}
		} else if said, is := strings.CutPrefix(line, `error: unable to drain node "`); is {
			name, why, _ := strings.Cut(said, `"`)
			w.rec.note("Node", "", name, "DrainFailed", map[string]any{"message": why})
		}
	}}
	command := kubectldrain.NewCmdDrain(cmdutil.NewFactory(virtualConfig{w.a}), genericiooptions.IOStreams{In: strings.NewReader(""), Out: heard, ErrOut: heard})
	command.SetArgs(d.arguments(nodes))
	command.SilenceUsage = true
	end := exits{}
	func() {
		defer func() {
			if e, is := recover().(exits); is {
				end = e
			}
		}()
		cmdutil.BehaviorOnFatal(func(why string, code int) { panic(exits{code, why}) })
		if err := command.Execute(); err != nil {
			end = exits{1, err.Error()}
		}
	}()
	w.rec.note("Node", "", strings.Join(nodes, ","), "Exit", map[string]any{"code": end.code, "why": end.why})
}

// answered makes a record of the answer to an eviction.
func (a *api) answered(p *v1.Pod, status metav1.Status) {
	owner := ""
	if o := metav1.GetControllerOf(p); o != nil {
		owner = o.Name
	}
	why := status.Message
	if status.Details != nil {
		for _, c := range status.Details.Causes {
			why = c.Message
		}
	}
	a.onAnswer("Pod", p.Namespace, p.Name, "Evict", map[string]any{"code": status.Code, "owner": owner, "node": p.Spec.NodeName, "why": why, "uid": p.UID})
}
