// A consumer on lib/pq: DATABASE_URL=... QUEUE=... LEASE=... consumer, until SIGTERM.
// Claims one job at a time, keeps its lease while it runs, and is on duty ("Being woken" in sql/CONSUMERS.md) between.
package main

import (
	"context"
	"fmt"
	"log"
	"os"
	"os/signal"
	"syscall"
	"time"
)

var url, queue, lease = os.Getenv("DATABASE_URL"), getenv("QUEUE", "default"), getenv("LEASE", "30") // seconds
var worker = fmt.Sprintf("go-%d", os.Getpid())

func getenv(name, otherwise string) string {
	if value := os.Getenv(name); value != "" {
		return value
	}
	return otherwise
}

// work goes on until it is to stop, or the session is lost.
func work(stopping context.Context) error {
	s, err := connect(stopping)
	defer s.close()
	if err == nil {
		fmt.Println("ready")
	}
	var j job
	for err == nil && stopping.Err() == nil {
		s.forget() // before each claim, never after it
		if j, err = s.claim(); err == nil && j.id == nil {
			s.doze(stopping, j)
		} else if err == nil {
			var outcome string
			if outcome, err = j.run(s); err == nil {
				fmt.Println(*j.id, *j.kind, outcome)
			}
		}
	}
	if err == nil && j.isOnDuty {
		err = s.row("select pgwake.unpark($1)", []any{queue}, new(bool))
	}
	return err
}

func main() {
	stopping, _ := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	for stopping.Err() == nil {
		if err := work(stopping); err != nil {
			log.Print(err)
			time.Sleep(time.Second)
		}
	}
}
