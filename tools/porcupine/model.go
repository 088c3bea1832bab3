package main

import (
	"cmp"
	"math/big"
	"slices"

	"github.com/anishathalye/porcupine"
)

// A grant of one key, or the end of a hold.
type step struct {
	id      int
	permits int
	// 0: readers, as many as like
	limit   int
	token   string
	isGrant bool
	// granted when its lease was over: it has held at one moment, and for no longer
	isDead bool
}

// The state of a key: its holders, and the highest token so far.
type lock struct {
	holders []step
	token   string
}

// A fenced lock with permits: a grant must be compatible with all holders, and its token above all earlier ones.
func fencedLock() porcupine.Model {
	return porcupine.Model{
		Init: func() any { return lock{} },
		Step: func(before, input, _ any) (bool, any) { return before.(lock).apply(input.(step)) },
		Equal: func(a, b any) bool {
			return a.(lock).token == b.(lock).token && slices.Equal(a.(lock).holders, b.(lock).holders)
		},
	}
}

func (l lock) apply(s step) (bool, lock) {
	if !s.isGrant {
		index := slices.IndexFunc(l.holders, func(holder step) bool { return holder.id == s.id })
		if index < 0 {
			return false, l
		}
		return true, lock{slices.Delete(slices.Clone(l.holders), index, index+1), l.token}
	}
	permits := s.permits
	for _, holder := range l.holders {
		if holder.limit != s.limit {
			return false, l
		}
		permits += holder.permits
	}
	if s.limit > 0 && permits > s.limit {
		return false, l
	}
	if s.token == "" {
		s.token = l.token
	} else if !isAbove(s.token, l.token) {
		return false, l
	}
	after := lock{slices.Clone(l.holders), s.token}
	if !s.isDead {
		after.holders = append(after.holders, s)
		slices.SortFunc(after.holders, func(a, b step) int { return cmp.Compare(a.id, b.id) })
	}
	return true, after
}

func isAbove(token, other string) bool {
	if other == "" {
		return true
	}
	a, isNumber := new(big.Int).SetString(token, 10)
	b, _ := new(big.Int).SetString(other, 10)
	return isNumber && a.Cmp(b) > 0
}
