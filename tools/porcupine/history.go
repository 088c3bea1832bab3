package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"math"
	"os"

	"github.com/anishathalye/porcupine"
)

// The longest line of a history.
const maxLine = 1 << 24

// What the model needs of a line of history.jsonl: docs/reference/torture-history.md.
type event struct {
	Event   string
	Phase   string
	At      int64
	Worker  int
	Op      int
	Permits int
	Limit   *int
	Keys    []string
	Tokens  map[string]string
	LeftMs  *float64
	WasHeld *bool
}

// One attempt to get a lock. Times in microseconds; never: it has not happened.
type attempt struct {
	request                            event
	granted, lost, releasing, released int64
	saidUntil                          int64
	wasHeld                            bool
	tokens                             map[string]string
}

const never = math.MaxInt64

type name struct{ worker, op int }

type reader struct {
	attempts map[name]*attempt
	order    []*attempt
	deaths   map[int]int64
}

// The operations of each key. Attempts without a grant put no bound on others, and are left out.
func readHistory(path string) (map[string][]porcupine.Operation, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	r := reader{attempts: map[name]*attempt{}, deaths: map[int]int64{}}
	lines := bufio.NewScanner(file)
	lines.Buffer(nil, maxLine)
	for number := 1; lines.Scan(); number++ {
		var e event
		if err := json.Unmarshal(lines.Bytes(), &e); err != nil {
			return nil, fmt.Errorf("line %d: %w", number, err)
		}
		r.add(e)
	}
	history := map[string][]porcupine.Operation{}
	for id, a := range r.order {
		r.addOperations(history, id, a)
	}
	return history, lines.Err()
}

func (r *reader) add(e event) {
	if e.Event == "invoke" {
		a := &attempt{request: e, granted: never, lost: never, releasing: never, released: never, saidUntil: -1}
		r.attempts[name{e.Worker, e.Op}] = a
		r.order = append(r.order, a)
	}
	if _, isDead := r.deaths[e.Worker]; e.Event == "worker" && e.Phase != "started" && !isDead {
		r.deaths[e.Worker] = e.At
	}
	a := r.attempts[name{e.Worker, e.Op}]
	switch e.Event {
	case "granted":
		a.granted, a.tokens = e.At, e.Tokens
	case "asked":
		if e.LeftMs == nil {
			a.saidUntil = max(a.saidUntil, e.At)
		} else if *e.LeftMs > 0 {
			a.saidUntil = max(a.saidUntil, e.At+int64(*e.LeftMs*1000))
		}
	case "lost":
		a.lost = min(a.lost, e.At)
	case "releasing":
		a.releasing = e.At
	case "released":
		a.released = e.At
		a.wasHeld = e.WasHeld != nil && *e.WasHeld
	}
}

// A grant lies between request and answer. A hold that was released while it was held ends between that request and its answer; any
// other one may end from the moment on in which its holder did not certainly believe in it, and at most until its lease said.
func (r *reader) addOperations(history map[string][]porcupine.Operation, id int, a *attempt) {
	if a.granted == never {
		return
	}
	from, to := a.releasing, a.released
	if !a.wasHeld {
		from = min(a.saidUntil, a.lost, a.releasing)
		if death, isDead := r.deaths[a.request.Worker]; isDead {
			from = min(from, death)
		}
		to = max(from, a.saidUntil)
	}
	isDead := !a.wasHeld && a.saidUntil < 0
	for _, key := range a.request.Keys {
		s := step{id: id, permits: a.request.Permits, token: a.tokens[key], isGrant: true, isDead: isDead}
		if a.request.Limit != nil {
			s.limit = *a.request.Limit
		}
		grant := porcupine.Operation{ClientId: id, Input: s, Call: a.request.At, Return: a.granted}
		history[key] = append(history[key], grant)
		if !isDead {
			end := porcupine.Operation{ClientId: id, Input: step{id: id}, Call: from, Return: to}
			history[key] = append(history[key], end)
		}
	}
}
