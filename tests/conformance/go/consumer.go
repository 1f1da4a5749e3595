// A consumer on lib/pq: DATABASE_URL=... QUEUE=... consumer, until SIGTERM.
// One job at a time. Goes on duty, as "Being woken" in sql/README.md says.
package main

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"log"
	"os"
	"os/signal"
	"strconv"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/lib/pq"
)

const first, poll = 5 * time.Millisecond, 5 * time.Second

type job struct {
	id, leaseID, kind string
	payload           []byte
	attempt           int
}

// failure is an error that says when to try again (nil: by the policy), or never.
type failure struct {
	message string
	retryIn *string
	isFinal bool
}

func (f failure) Error() string { return f.message }

func echo(ctx context.Context, j job) (any, error) {
	var payload struct {
		Number  int
		Seconds float64
	}
	if err := json.Unmarshal(j.payload, &payload); err != nil {
		return nil, err
	}
	select {
	case <-time.After(time.Duration(payload.Seconds * float64(time.Second))):
		return map[string]any{"number": payload.Number, "by": "go"}, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

func failOnce(ctx context.Context, j job) (any, error) {
	atOnce := "0 seconds"
	if j.attempt == 1 {
		return nil, failure{message: "not yet", retryIn: &atOnce}
	}
	return echo(ctx, j)
}

func fail(context.Context, job) (any, error) { return nil, failure{message: "never", isFinal: true} }

var handlers = map[string]func(context.Context, job) (any, error){
	"conformance.echo": echo, "conformance.fail_once": failOnce, "conformance.fail": fail,
}

type consumer struct {
	*sql.Conn
	queue, worker, lease string
	beat                 time.Duration
}

// ask runs a statement and gives its first value.
func (c consumer) ask(statement string, values ...any) (string, error) {
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	var answer sql.NullString
	err := c.QueryRowContext(ctx, statement, values...).Scan(&answer)
	return answer.String, err
}

func (c consumer) claim() (j job, err error) {
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	err = c.QueryRowContext(ctx,
		"select id, lease_id, kind, payload, attempt from pgwake.claim_next_job($1, $2, $3)",
		c.queue, c.worker, c.lease).Scan(&j.id, &j.leaseID, &j.kind, &j.payload, &j.attempt)
	return j, err
}

// run says how the job ended.
func (c consumer) run(stopping context.Context, j job) (string, error) {
	ctx, stop := context.WithCancel(stopping)
	defer stop()
	type end struct {
		result any
		err    error
	}
	ended := make(chan end, 1)
	go func() {
		handle, known := handlers[j.kind]
		if !known {
			ended <- end{nil, fmt.Errorf("unknown kind %s", j.kind)}
			return
		}
		result, err := handle(ctx, j)
		ended <- end{result, err}
	}()
	for {
		select {
		case <-time.After(c.beat):
			kept, err := c.ask("select (pgwake.extend_leases(array[$1::bigint], array[$2::uuid], $3::interval))[1]",
				j.id, j.leaseID, c.lease)
			if err != nil {
				return "", err
			} else if kept == "lease_lost" {
				return "lost", nil
			} else if kept == "cancel_requested" {
				stop()
			}
		case done := <-ended:
			outcome, err := c.end(stopping, j, done.result, done.err)
			var refused *pq.Error
			if errors.As(err, &refused) && refused.Code == "PW002" {
				return "lost", nil
			}
			return outcome, err
		}
	}
}

func (c consumer) end(stopping context.Context, j job, result any, err error) (string, error) {
	if err == nil {
		text, _ := json.Marshal(result)
		_, err = c.ask("select pgwake.complete_job($1, $2, $3)", j.id, j.leaseID, text)
		return "completed", err
	} else if stopping.Err() != nil {
		return c.ask("select (pgwake.release_jobs(array[$1::bigint], array[$2::uuid], 'shutdown'))[1]", j.id, j.leaseID)
	}
	var how failure
	errors.As(err, &how)
	return c.ask("select pgwake.fail_job($1, $2, $3, retry_in => $4, retryable => $5)",
		j.id, j.leaseID, err.Error(), how.retryIn, !how.isFinal)
}

// work goes on until it is to stop, or the connection is lost.
func (c consumer) work(stopping context.Context, woken <-chan struct{}, onDuty *atomic.Bool) error {
	pause := first
	for stopping.Err() == nil {
		select { // forget, before each claim
		case <-woken:
		default:
		}
		j, err := c.claim()
		if err == nil {
			if err := c.unpark(onDuty); err != nil {
				return err
			}
			outcome, err := c.run(stopping, j)
			if err != nil {
				return err
			}
			fmt.Println(j.id, j.kind, outcome)
			pause = first
			continue
		} else if err != sql.ErrNoRows {
			return err
		}
		if !onDuty.Load() {
			parked, err := c.ask("select pgwake.park($1)", c.queue)
			if err != nil {
				return err
			}
			if parked == "true" {
				onDuty.Store(true)
				pause = first
				continue // look once more
			}
		}
		due, err := c.ask("select extract(epoch from pgwake.next_run_at($1) - now())", c.queue)
		if err != nil {
			return err
		}
		most := poll
		if onDuty.Load() {
			most = pause
			seconds, _ := strconv.ParseFloat(due, 64)
			if wait := time.Duration(seconds * float64(time.Second)); wait > 0 && wait < pause {
				most = wait
			}
		}
		select {
		case <-woken:
		case <-time.After(most):
		case <-stopping.Done():
		}
		if pause *= 2; pause > poll {
			pause = poll
		}
	}
	return c.unpark(onDuty)
}

func (c consumer) unpark(onDuty *atomic.Bool) (err error) {
	if onDuty.Swap(false) {
		_, err = c.ask("select pgwake.unpark($1)", c.queue)
	}
	return err
}

// connect works on a connection of its own, beside the one that listens, until that ends.
func (c consumer) connect(stopping context.Context, url string) error {
	database, err := sql.Open("postgres", url)
	if err != nil {
		return err
	}
	defer database.Close()
	onDuty, woken := &atomic.Bool{}, make(chan struct{}, 1)
	listener := pq.NewListener(url, time.Second, time.Second, nil)
	defer listener.Close()
	for _, channel := range []string{"pgwake", "pgwake_baton"} {
		if err := listener.Listen(channel); err != nil {
			return err
		}
	}
	go func() {
		for note := range listener.Notify { // nil: it was lost, and is back
			if note == nil || note.Extra == c.queue && (onDuty.Load() || note.Channel == "pgwake_baton") {
				select {
				case woken <- struct{}{}:
				default:
				}
			}
		}
	}()
	if c.Conn, err = database.Conn(stopping); err != nil {
		return err
	}
	fmt.Println("ready")
	return c.work(stopping, woken, onDuty)
}

func main() {
	stopping, _ := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	lease, err := strconv.Atoi(os.Getenv("LEASE"))
	if err != nil {
		lease = 30
	}
	c := consumer{
		queue: os.Getenv("QUEUE"), worker: fmt.Sprintf("go-%d", os.Getpid()),
		lease: fmt.Sprintf("%d seconds", lease), beat: time.Duration(lease) * time.Second / 3,
	}
	if c.queue == "" {
		c.queue = "default"
	}
	for stopping.Err() == nil {
		if err := c.connect(stopping, os.Getenv("DATABASE_URL")); err != nil && stopping.Err() == nil {
			log.Print(err)
			time.Sleep(time.Second)
		}
	}
}
