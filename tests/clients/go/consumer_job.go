package main

import (
	"errors"
	"time"

	"github.com/lib/pq"
)

// A job that was claimed; without an id how long to wait for one.
type job struct {
	id, leaseID, kind *string
	attempt           *int
	payload           []byte
	waitSeconds       float64
	isOnDuty          bool
}

func (s *session) claim() (j job, err error) {
	err = s.row(`select id, lease_id, kind, attempt, payload, coalesce(wait_seconds, 0), is_on_duty
		from pgwake.claim_or_wait($1, $2, $3)`, []any{queue, worker, lease},
		&j.id, &j.leaseID, &j.kind, &j.attempt, &j.payload, &j.waitSeconds, &j.isOnDuty)
	return j, err
}

// run says how the job ended.
func (j job) run(s *session) (outcome string, err error) {
	done := make(chan struct{})
	defer close(done)
	go j.keep(s, done)
	result, err := handle(j)
	if err == nil {
		err = s.row("select pgwake.complete_job($1, $2, $3)", []any{j.id, j.leaseID, result}, new(any))
	}
	if err == nil {
		return "completed", nil
	}
	var how failure
	errors.As(err, &how)
	err = s.row("select pgwake.fail_job($1, $2, $3, retry_in => $4, retryable => $5)",
		[]any{j.id, j.leaseID, err.Error(), how.retryIn, !how.isFinal}, &outcome)
	var refused *pq.Error
	if errors.As(err, &refused) && refused.Code == "PW002" {
		return "lost", nil // somebody else has it
	}
	return outcome, err
}

// keep extends the lease of the job, by another session of the pool, until it is done.
func (j job) keep(s *session, done <-chan struct{}) {
	beat, _ := time.ParseDuration(lease + "s")
	for {
		select {
		case <-done:
			return
		case <-time.After(beat / 3):
			s.db.Exec("select pgwake.extend_leases(array[$1::bigint], array[$2::uuid], $3)", j.id, j.leaseID, lease)
		}
	}
}
