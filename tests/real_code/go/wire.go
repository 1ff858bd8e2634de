package main

// The API server as clients see it: requests to answers, without a socket.

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"sort"
	"strconv"
	"strings"
	"time"

	jsonpatch "gopkg.in/evanphx/json-patch.v4"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/strategicpatch"
)

type wire struct {
	a     *api
	agent string
}

type target struct {
	resource, ns, name, sub string
}

func parsePath(path string) (t target, ok bool) {
	p := strings.Split(strings.Trim(path, "/"), "/")
	switch {
	case len(p) >= 3 && p[0] == "api":
		p = p[2:]
	case len(p) >= 4 && p[0] == "apis":
		p = p[3:]
	default:
		return t, false
	}
	if p[0] == "namespaces" && len(p) >= 3 {
		t.ns = p[1]
		p = p[2:]
	}
	t.resource = p[0]
	if len(p) > 1 {
		t.name = p[1]
	}
	if len(p) > 2 {
		t.sub = p[2]
	}
	_, ok = kinds[t.resource]
	return t, ok
}

func (w wire) RoundTrip(r *http.Request) (*http.Response, error) {
	var body []byte
	if r.Body != nil {
		body, _ = io.ReadAll(r.Body)
		r.Body.Close()
	}
	if w.agent == kubectl {
		time.Sleep(*kubectlTakes / 2)
		defer time.Sleep(*kubectlTakes / 2)
	}
	t, ok := parsePath(r.URL.Path)
	if list, is := discovered[r.URL.Path]; is {
		return w.raw(r, 200, []byte(list))
	}
	if !ok {
		return w.answer(r, nil, "", fail(404, metav1.StatusReasonNotFound, "the server could not find the requested resource %s", r.URL.Path))
	}
	q := r.URL.Query()
	if r.Method != "GET" && w.agent != "node-lifecycle" && w.agent != kubectl && t.resource != "events" && w.a.slow != nil { // node-lifecycle writes under its queue's lock: it cannot wait in a bubble
		w.a.mu.Lock()
		before, after := w.a.slow(), w.a.slow()
		w.a.mu.Unlock()
		time.Sleep(before)
		defer time.Sleep(after)
	}
	if r.Method == "GET" && t.resource == "leases" && t.name != "" {
		time.Sleep(w.a.readTakes(t.name))
	}
	w.a.mu.Lock()
	w.a.requests[w.agent+" "+r.Method+" "+t.resource+" "+t.sub]++
	var hit *failing
	if r.Method != "GET" && t.resource != "events" {
		hit = w.a.fault(w.agent, r.Method, t)
	} else if r.Method == "GET" && t.name != "" {
		hit = w.a.readFault(t)
	}
	w.a.mu.Unlock()
	if hit == nil {
		return w.serve(r, t, q, body)
	}
	if hit.applied {
		if _, err := w.serve(r, t, q, body); err != nil {
			return nil, err
		}
	}
	return w.refuse(r, hit)
}

// readTakes is how long the read of a Lease takes: so long that node-lifecycle's eight workers read at once, and too short to
// count; those that begin together end in the order of their names.
func (a *api) readTakes(name string) time.Duration {
	a.mu.Lock()
	defer a.mu.Unlock()
	takes := time.Microsecond
	for _, e := range a.stores["leases"] {
		if e.obj.GetName() < name {
			takes++
		}
	}
	return takes
}

func (w wire) serve(r *http.Request, t target, q url.Values, body []byte) (*http.Response, error) {
	switch r.Method {
	case "GET":
		if t.name != "" {
			w.a.mu.Lock()
			e, ok := w.a.stores[t.resource][key(t.ns, t.name)]
			w.a.mu.Unlock()
			if !ok {
				return w.answer(r, nil, "", fail(404, metav1.StatusReasonNotFound, "%s %q not found", t.resource, t.name))
			}
			return w.raw(r, 200, e.json)
		}
		if q.Get("watch") == "true" || q.Get("watch") == "1" {
			if q.Get("sendInitialEvents") == "true" {
				return w.answer(r, nil, "", fail(422, metav1.StatusReasonInvalid, "sendInitialEvents is forbidden for watch"))
			}
			return w.watch(r, t, q)
		}
		return w.list(r, t, q)
	case "POST":
		if t.sub == "eviction" {
			return w.evict(r, t, body)
		}
		o, err := w.a.decode(t.resource, body)
		if err != nil {
			return w.answer(r, nil, "", err.(*apiError))
		}
		if t.ns != "" {
			o.SetNamespace(t.ns)
		}
		made, e := w.a.create(w.agent, t.resource, o, false)
		return w.answer(r, made, t.resource, e)
	case "PUT":
		o, err := w.a.decode(t.resource, body)
		if err != nil {
			return w.answer(r, nil, "", err.(*apiError))
		}
		made, e := w.a.change(w.agent, "update", t.resource, t.ns, t.name, t.sub, write{taints: true, labels: true}, func(entry) (metav1.Object, *apiError) { return o, nil })
		return w.answer(r, made, t.resource, e)
	case "PATCH":
		ctype := strings.Split(r.Header.Get("Content-Type"), ";")[0]
		made, e := w.a.patch(w.agent, t, ctype, body)
		return w.answer(r, made, t.resource, e)
	case "DELETE":
		var opts metav1.DeleteOptions
		if len(body) > 0 {
			if err := json.Unmarshal(body, &opts); err != nil {
				return nil, err
			}
		}
		o, e := w.a.remove(w.agent, t.resource, t.ns, t.name, opts)
		return w.answer(r, o, t.resource, e)
	}
	return nil, fmt.Errorf("%s %s is not served", r.Method, r.URL)
}

func (a *api) patch(agent string, t target, ctype string, body []byte) (metav1.Object, *apiError) {
	w := write{taints: bytes.Contains(body, []byte("taints")), labels: bytes.Contains(body, []byte("labels"))}
	if w.labels {
		var m struct {
			Metadata struct {
				Labels map[string]any `json:"labels"`
			} `json:"metadata"`
		}
		if json.Unmarshal(body, &m) == nil {
			for k := range m.Metadata.Labels {
				w.labelKeys = append(w.labelKeys, k)
			}
			sort.Strings(w.labelKeys)
		}
	}
	return a.change(agent, "patch", t.resource, t.ns, t.name, t.sub, w, func(old entry) (metav1.Object, *apiError) {
		var out []byte
		var err error
		switch ctype {
		case string(types.StrategicMergePatchType):
			out, err = strategicpatch.StrategicMergePatch(old.json, body, kinds[t.resource].fresh())
		case string(types.MergePatchType):
			out, err = jsonpatch.MergePatch(old.json, body)
		default:
			return nil, fail(415, metav1.StatusReasonUnsupportedMediaType, "%s is not served", ctype)
		}
		if err != nil {
			return nil, fail(400, metav1.StatusReasonBadRequest, "%v", err)
		}
		o, err := a.decode(t.resource, out)
		if err != nil {
			return nil, err.(*apiError)
		}
		return o, nil
	})
}

func (w wire) list(r *http.Request, t target, q url.Values) (*http.Response, error) {
	selector, err := labels.Parse(q.Get("labelSelector"))
	if err != nil {
		return nil, err
	}
	node, ofNode := strings.CutPrefix(q.Get("fieldSelector"), "spec.nodeName=")
	w.a.mu.Lock()
	defer w.a.mu.Unlock()
	var names []string
	for k, e := range w.a.stores[t.resource] {
		if p, is := e.obj.(*v1.Pod); is && ofNode && p.Spec.NodeName != node {
			continue
		}
		if (t.ns == "" || e.obj.GetNamespace() == t.ns) && selector.Matches(labels.Set(e.obj.GetLabels())) {
			names = append(names, k)
		}
	}
	sort.Strings(names)
	k := kinds[t.resource]
	var b bytes.Buffer
	fmt.Fprintf(&b, `{"kind":"%sList","apiVersion":%q,"metadata":{"resourceVersion":"%d"},"items":[`, k.kind, k.apiVersion, w.a.rv)
	for i, n := range names {
		if i > 0 {
			b.WriteByte(',')
		}
		b.Write(w.a.stores[t.resource][n].json)
	}
	b.WriteString("]}")
	return w.raw(r, 200, b.Bytes())
}

// everything is a List of all objects but Events.
func (a *api) everything() []byte {
	a.mu.Lock()
	defer a.mu.Unlock()
	var items [][]byte
	for _, r := range []string{"nodes", "leases", "pods", "daemonsets", "controllerrevisions", "deployments", "replicasets", "statefulsets", "replicationcontrollers", "jobs", "poddisruptionbudgets"} {
		for _, k := range keysOf(a.stores[r]) {
			items = append(items, a.stores[r][k].json)
		}
	}
	return append(append([]byte(`{"kind":"List","apiVersion":"v1","items":[`), bytes.Join(items, []byte(","))...), "]}"...)
}

func (w wire) watch(r *http.Request, t target, q url.Values) (*http.Response, error) {
	since, _ := strconv.ParseInt(q.Get("resourceVersion"), 10, 64)
	me := &watcher{ns: t.ns, wake: make(chan struct{}, 1)}
	w.a.mu.Lock()
	for _, e := range w.a.history[t.resource] {
		if e.rv > since {
			me.queue = append(me.queue, e)
		}
	}
	w.a.watchers[t.resource] = append(w.a.watchers[t.resource], me)
	w.a.mu.Unlock()
	pr, pw := io.Pipe()
	go func() {
		for {
			w.a.mu.Lock()
			if held := w.a.held; held != nil && t.resource == "leases" {
				w.a.mu.Unlock()
				<-held
				continue
			}
			some := me.queue
			me.queue = nil
			w.a.mu.Unlock()
			if len(some) == 0 {
				<-me.wake
				continue
			}
			for _, e := range some {
				if d := time.Until(e.at); d > 0 {
					time.Sleep(d)
				}
				if _, err := pw.Write(e.line); err != nil {
					return
				}
			}
		}
	}()
	return &http.Response{StatusCode: 200, Status: "200 OK", Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1, Header: http.Header{"Content-Type": {"application/json"}}, Body: pr, ContentLength: -1, Request: r}, nil
}

func (w wire) answer(r *http.Request, o metav1.Object, resource string, e *apiError) (*http.Response, error) {
	if e != nil {
		b, _ := json.Marshal(metav1.Status{TypeMeta: metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}, Status: "Failure", Code: int32(e.code), Reason: e.reason, Message: e.text})
		return w.raw(r, e.code, b)
	}
	return w.raw(r, 200, w.a.encode(resource, o))
}

func (w wire) raw(r *http.Request, code int, b []byte) (*http.Response, error) {
	return &http.Response{StatusCode: code, Status: strconv.Itoa(code) + " " + http.StatusText(code), Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1, Header: http.Header{"Content-Type": {"application/json"}}, Body: io.NopCloser(bytes.NewReader(b)), ContentLength: int64(len(b)), Request: r}, nil
}
