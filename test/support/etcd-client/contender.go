// Contenders that use etcd's own client, as Contender.java uses Curator.
package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/concurrency"
	"go.uber.org/zap"
)

// "contender ENDPOINT TTL_SECONDS REGISTER_PORT" obeys a line at a time and tells on its output what happened:
//
//	open NAME RECIPE KEY       with a session, and so a lease, of its own; RECIPE is mutex or election
//	acquire NAME               told "NAME held", and before it "NAME key KEY"
//	try NAME MS                told the same, or "NAME busy"
//	release NAME               told "NAME released"
//	cycles NAME TIMES HOLD_MS  acquire, be inside as the register sees it, release; told "NAME done"
//
// When the session of a contender ends, "NAME lost" is told.
type contender struct {
	name    string
	session *concurrency.Session
	recipe  recipe
	// orders of one contender come one after another
	orders chan []string
}

type recipe interface {
	acquire(ctx context.Context) error
	release(ctx context.Context) error
	key() string
}

type mutex struct{ *concurrency.Mutex }

func (m mutex) acquire(ctx context.Context) error { return m.Lock(ctx) }
func (m mutex) release(ctx context.Context) error { return m.Unlock(ctx) }
func (m mutex) key() string                       { return m.Key() }

type election struct {
	*concurrency.Election
	name string
}

func (e election) acquire(ctx context.Context) error { return e.Campaign(ctx, e.name) }
func (e election) release(ctx context.Context) error { return e.Resign(ctx) }
func (e election) key() string                       { return e.Key() }

var output sync.Mutex

func report(name string, text string) {
	output.Lock()
	defer output.Unlock()
	fmt.Printf("%s %s\n", name, text)
}

func main() {
	ttl, _ := strconv.Atoi(os.Args[2])
	client, err := clientv3.New(clientv3.Config{Endpoints: []string{os.Args[1]}, Logger: zap.NewNop()})
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	all := map[string]*contender{}
	fmt.Println("ready")
	for lines := bufio.NewScanner(os.Stdin); lines.Scan(); {
		words := strings.Fields(lines.Text())
		name := words[1]
		if words[0] == "open" {
			opened, err := open(client, ttl, name, words[2], words[3])
			if err != nil {
				report(name, "failed "+err.Error())
				continue
			}
			all[name] = opened
			go opened.obey(os.Args[3])
			report(name, "open")
			continue
		}
		all[name].orders <- words
	}
}

func open(client *clientv3.Client, ttl int, name string, kind string, key string) (*contender, error) {
	session, err := concurrency.NewSession(client, concurrency.WithTTL(ttl))
	if err != nil {
		return nil, err
	}
	go func() {
		<-session.Done()
		report(name, "lost")
	}()
	opened := &contender{name: name, session: session, orders: make(chan []string, 100)}
	if kind == "election" {
		opened.recipe = election{concurrency.NewElection(session, key), name}
	} else {
		opened.recipe = mutex{concurrency.NewMutex(session, key)}
	}
	return opened, nil
}

func (c *contender) obey(registerPort string) {
	for words := range c.orders {
		if err := c.execute(words, registerPort); err != nil {
			report(c.name, "failed "+err.Error())
		}
	}
}

func (c *contender) execute(words []string, registerPort string) error {
	switch words[0] {
	case "acquire":
		return c.acquire(context.Background())
	case "try":
		milliseconds, _ := strconv.Atoi(words[2])
		ctx, cancel := context.WithTimeout(context.Background(), time.Duration(milliseconds)*time.Millisecond)
		defer cancel()
		err := c.acquire(ctx)
		if errors.Is(err, context.DeadlineExceeded) {
			report(c.name, "busy")
			return nil
		}
		return err
	case "release":
		if err := c.recipe.release(context.Background()); err != nil {
			return err
		}
		report(c.name, "released")
	case "cycles":
		times, _ := strconv.Atoi(words[2])
		holdMs, _ := strconv.Atoi(words[3])
		return c.cycles(registerPort, times, time.Duration(holdMs)*time.Millisecond)
	}
	return nil
}

func (c *contender) acquire(ctx context.Context) error {
	if err := c.recipe.acquire(ctx); err != nil {
		return err
	}
	report(c.name, "key "+c.recipe.key())
	report(c.name, "held")
	return nil
}

func (c *contender) cycles(registerPort string, times int, hold time.Duration) error {
	register, err := net.Dial("tcp", "127.0.0.1:"+registerPort)
	if err != nil {
		return err
	}
	defer register.Close()
	answers := bufio.NewReader(register)
	say := func(text string) error {
		if _, err := fmt.Fprintf(register, "%s %s\n", text, c.name); err != nil {
			return err
		}
		_, err := answers.ReadString('\n')
		return err
	}
	ctx := context.Background()
	for i := 0; i < times; i++ {
		if err := c.recipe.acquire(ctx); err != nil {
			return err
		}
		if err := say("enter"); err != nil {
			return err
		}
		time.Sleep(hold)
		if err := say("leave"); err != nil {
			return err
		}
		if err := c.recipe.release(ctx); err != nil {
			return err
		}
	}
	report(c.name, "done")
	return nil
}
