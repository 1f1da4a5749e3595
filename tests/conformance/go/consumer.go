// A consumer on lib/pq: DATABASE_URL=... QUEUE=... LEASE=... consumer, until SIGTERM.
// Claims one job at a time, keeps its lease while it runs, and is on duty ("Being woken" in sql/README.md) between.
package main

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"log"
	"math"
	"os"
	"os/signal"
	"strconv"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/lib/pq"
)

const poll = 5.0 // seconds until it looks again at the latest

var url, queue, lease = os.Getenv("DATABASE_URL"), getenv("QUEUE", "default"), getenv("LEASE", "30") // seconds
var worker = fmt.Sprintf("go-%d", os.Getpid())

func getenv(name, otherwise string) string {
	if value := os.Getenv(name); value != "" {
		return value
	}
	return otherwise
}

// A session remembers its first error, and does nothing after that.
type session struct {
	*sql.Conn
	err error
}

// row reads the first row, if there is one, within 30 s.
func (s *session) row(statement string, values []any, fields ...any) bool {
	if s.err != nil {
		return false
	}
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	err := s.QueryRowContext(ctx, statement, values...).Scan(fields...)
	if err != sql.ErrNoRows {
		s.err = err
	}
	return err == nil
}

func (s *session) ask(call string, values ...any) string {
	var answer sql.NullString
	s.row("select "+call, values, &answer)
	return answer.String
}

type job struct {
	id, leaseID, kind string
	attempt           int
	payload           []byte
}

// run says how the job ended.
func (s *session) run(j job, db *sql.DB) string {
	done := make(chan struct{})
	defer close(done)
	go keep(j, db, done)
	var result any
	err := fmt.Errorf("unknown kind %s", j.kind)
	if handle, isKnown := handlers[j.kind]; isKnown {
		result, err = handle(j)
	}
	if err == nil {
		text, _ := json.Marshal(result)
		s.ask("pgwake.complete_job($1, $2, $3)", j.id, j.leaseID, text)
		if err = s.err; err == nil {
			return "completed"
		}
		s.err = nil // refused, such as a result that is too large: it fails the job
	}
	var how failure
	errors.As(err, &how)
	outcome := s.ask("pgwake.fail_job($1, $2, $3, retry_in => $4, retryable => $5)",
		j.id, j.leaseID, err.Error(), how.retryIn, !how.isFinal)
	var refused *pq.Error
	if errors.As(s.err, &refused) && refused.Code == "PW002" {
		s.err = nil
		return "lost" // somebody else has it
	}
	return outcome
}

// keep extends the lease of a job, by another session of the pool, until it is done.
func keep(j job, db *sql.DB, done <-chan struct{}) {
	seconds, _ := strconv.ParseFloat(lease, 64)
	for {
		select {
		case <-done:
			return
		case <-time.After(time.Duration(seconds * float64(time.Second) / 3)):
			db.Exec("select pgwake.extend_leases(array[$1::bigint], array[$2::uuid], $3)", j.id, j.leaseID, lease)
		}
	}
}

// hear tells by woken that the queue was named, to us.
func hear(notes <-chan *pq.Notification, woken chan<- struct{}, onDuty *atomic.Bool) {
	for note := range notes { // nil: the session was lost, and is back
		if note == nil || note.Extra == queue && (onDuty.Load() || note.Channel == "pgwake_baton") {
			select {
			case woken <- struct{}{}:
			default:
			}
		}
	}
}

// work goes on until it is to stop, or the connection is lost.
func work(stopping context.Context) error {
	db, _ := sql.Open("postgres", url)
	defer db.Close()
	connection, err := db.Conn(stopping)
	if err != nil {
		return err
	}
	listener := pq.NewListener(url, time.Second, time.Second, nil)
	defer listener.Close()
	woken, onDuty := make(chan struct{}, 1), &atomic.Bool{}
	go hear(listener.Notify, woken, onDuty)
	for _, channel := range []string{"pgwake", "pgwake_baton"} {
		if err := listener.Listen(channel); err != nil {
			return err
		}
	}
	s := &session{Conn: connection}
	fmt.Println("ready")
	pause := poll
	for stopping.Err() == nil && s.err == nil {
		select { // forgets what has been heard: before each claim, never after it
		case <-woken:
		default:
		}
		var j job
		claim := "select id, lease_id, kind, attempt, payload from pgwake.claim_next_job($1, $2, $3)"
		isClaimed := s.row(claim, []any{queue, worker, lease}, &j.id, &j.leaseID, &j.kind, &j.attempt, &j.payload)
		if isClaimed && onDuty.Swap(false) {
			s.ask("pgwake.unpark($1)", queue)
		}
		if isClaimed {
			if outcome := s.run(j, db); s.err == nil {
				fmt.Println(j.id, j.kind, outcome)
			}
		} else if !onDuty.Load() && s.ask("pgwake.park($1)", queue) == "true" {
			onDuty.Store(true)
			pause = 0.005 // and looks once more
		} else {
			due, _ := strconv.ParseFloat(s.ask("extract(epoch from pgwake.next_run_at($1) - now())", queue), 64)
			most := poll
			if onDuty.Load() && due > 0 {
				most = math.Min(due, pause)
			} else if onDuty.Load() {
				most = pause
			}
			pause = math.Min(2*pause, poll)
			select {
			case <-woken:
			case <-time.After(time.Duration(most * float64(time.Second))):
			case <-stopping.Done():
			}
		}
	}
	if onDuty.Load() {
		s.ask("pgwake.unpark($1)", queue)
	}
	return s.err
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
