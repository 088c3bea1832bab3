// A second judge of a torture: has each key of its history an order of grants and releases that a fenced lock allows?
package main

import (
	"flag"
	"fmt"
	"maps"
	"os"
	"slices"
	"time"

	"github.com/anishathalye/porcupine"
)

// As those of `holdfast torture`.
const (
	exitViolated = 1
	exitUnknown  = 2
	exitUsage    = 64
)

func main() {
	limit := flag.Duration("timeout", 30*time.Second, "the longest time for one key")
	flag.Parse()
	history, err := readHistory(flag.Arg(0))
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(exitUsage)
	}
	code := 0
	for _, key := range slices.Sorted(maps.Keys(history)) {
		result := porcupine.CheckOperationsTimeout(fencedLock(), history[key], *limit)
		fmt.Printf("%q: %s (%d operations)\n", key, result, len(history[key]))
		if result == porcupine.Illegal {
			code = exitViolated
		} else if result == porcupine.Unknown && code == 0 {
			code = exitUnknown
		}
	}
	os.Exit(code)
}
