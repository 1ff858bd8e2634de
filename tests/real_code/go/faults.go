package main

// Writes and reads that the API server fails, as a scenario's failingWrites and failingReads say (docs/scenario.md),
// and a watch of Leases that stands still.

import (
	"encoding/json"
	"net/http"
	"strconv"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

type failing struct {
	Controller, Verb, Kind, Name, Message, From, Until string
	Code                                               json.RawMessage
	Times                                              *int
	Probability                                        *float64
	code                                               int
	applied                                            bool
	from, until                                        time.Duration
}

var verbs = map[string]string{"POST": "create", "PUT": "patch", "PATCH": "patch", "DELETE": "delete"}

var reasons = map[int]metav1.StatusReason{403: metav1.StatusReasonForbidden, 404: metav1.StatusReasonNotFound, 409: metav1.StatusReasonConflict, 422: metav1.StatusReasonInvalid,
	429: metav1.StatusReasonTooManyRequests, 500: metav1.StatusReasonInternalError, 503: metav1.StatusReasonServiceUnavailable, 504: metav1.StatusReasonTimeout}

func (f *failing) read() {
	if f.Probability != nil {
		panic("failingWrites by probability are not played here")
	}
	f.code = 500
	switch code := string(f.Code); code {
	case "":
	case `"lost"`:
		f.applied = true
	default:
		n, err := strconv.Atoi(code)
		if err != nil {
			panic(err)
		}
		f.code = n
	}
	f.from, f.until = duration(f.From, "0s"), duration(f.Until, "1000000h")
}

// fault is the first entry that hits this request; each that does counts down. The lock is held.
func (a *api) fault(agent, method string, t target) *failing {
	at := time.Since(a.t0)
	for i := range a.failing {
		f := &a.failing[i]
		if (f.Controller == "" || f.Controller == agent) && (f.Verb == "" || f.Verb == verbs[method]) && (f.Kind == "" || resourceOf[f.Kind] == t.resource) && (f.Name == "" || f.Name == t.name) &&
			f.from <= at && at < f.until && (f.Times == nil || *f.Times > 0) {
			if f.Times != nil {
				*f.Times--
			}
			return f
		}
	}
	return nil
}

// readFault is the first entry that hits this read of a Lease. The lock is held.
func (a *api) readFault(t target) *failing {
	at := time.Since(a.t0)
	for i := range a.reads {
		f := &a.reads[i]
		if t.resource == "leases" && (f.Name == "" || f.Name == t.name) && f.from <= at && at < f.until {
			return f
		}
	}
	return nil
}

// holdLeases lets the controllers' watch of Leases stand still, or go on with all that it has missed.
func (a *api) holdLeases(stale bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if stale && a.held == nil {
		a.held = make(chan struct{})
	} else if !stale && a.held != nil {
		close(a.held)
		a.held = nil
	}
}

func (w wire) refuse(r *http.Request, f *failing) (*http.Response, error) {
	text := f.Message
	if text == "" {
		text = "the scenario fails this write"
	}
	return w.answer(r, nil, "", fail(f.code, reasons[f.code], "%s", text))
}
