package main

import (
	"context"
	"database/sql"
	"time"

	"github.com/lib/pq"
)

// A session can be on duty; the listener has one of its own.
type session struct {
	*sql.Conn
	db       *sql.DB
	listener *pq.Listener
}

func connect(ctx context.Context) (*session, error) {
	db, _ := sql.Open("postgres", url) // connects later, so it can't fail
	connection, err := db.Conn(ctx)
	s := &session{connection, db, pq.NewListener(url, time.Second, time.Second, nil)}
	for _, channel := range []string{"pgwake", "pgwake_duty"} {
		if err == nil {
			err = s.listener.Listen(channel)
		}
	}
	return s, err
}

func (s *session) close() {
	s.listener.Close()
	s.db.Close()
}

// row reads the first row of a statement, within 30 s.
func (s *session) row(statement string, values []any, fields ...any) error {
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	return s.QueryRowContext(ctx, statement, values...).Scan(fields...)
}

func (s *session) forget() {
	for len(s.listener.Notify) > 0 {
		<-s.listener.Notify
	}
}

// doze sleeps as long as the claim of no job said, or until the queue is named.
func (s *session) doze(stopping context.Context, j job) {
	ctx, cancel := context.WithTimeout(stopping, time.Duration(j.waitSeconds*float64(time.Second)))
	defer cancel()
	for isNamed := false; !isNamed && ctx.Err() == nil; {
		select {
		case note := <-s.listener.Notify: // nil: it was lost, and is back
			isNamed = note == nil || note.Extra == queue && (j.isOnDuty || note.Channel == "pgwake_duty")
		case <-ctx.Done():
		}
	}
}
