// A producer on lib/pq: DATABASE_URL=... QUEUE=... producer COUNT [PREFIX]
// Plain inserts, in the caller's own transactions.
package main

import (
	"database/sql"
	"errors"
	"fmt"
	"log"
	"os"
	"strconv"

	"github.com/lib/pq"
)

func must[T any](value T, err error) T {
	if err != nil {
		log.Fatal(err)
	}
	return value
}

// enqueue says how many were added: none if the key is taken.
func enqueue(tx *sql.Tx, prefix string, number int) int64 {
	result := must(tx.Exec(
		`insert into pgwake.jobs (queue, kind, payload, metadata, unique_key)
		values (coalesce(nullif($1, ''), 'default'), 'conformance.echo', jsonb_build_object('number', $2::int), $3, $4)
		on conflict do nothing`,
		os.Getenv("QUEUE"), number, `{"from": "go"}`, prefix+strconv.Itoa(number)))
	return must(result.RowsAffected())
}

// produce adds the jobs of a range in a transaction, which finish ends.
func produce(db *sql.DB, prefix string, first, end int, finish func(*sql.Tx) error) (added int64) {
	tx := must(db.Begin())
	for number := first; number < end; number++ {
		added += enqueue(tx, prefix, number)
	}
	return must(added, finish(tx))
}

func main() {
	count := must(strconv.Atoi(os.Args[1]))
	prefix := append(os.Args, "go-")[2]
	db := must(sql.Open("postgres", os.Getenv("DATABASE_URL")))
	inserted := produce(db, prefix, 0, count%10, (*sql.Tx).Commit)
	for first := count % 10; first < count; first += 10 {
		inserted += produce(db, prefix, first, first+10, (*sql.Tx).Commit)
	}
	produce(db, prefix, count, count+10, (*sql.Tx).Rollback) // none of these
	_, err := db.Exec("insert into pgwake.jobs (kind, priority) values ('bad', 1000)")
	var refused *pq.Error
	if errors.As(err, &refused) {
		fmt.Println("refused", refused.Code)
	}
	fmt.Println("inserted", inserted)
}
