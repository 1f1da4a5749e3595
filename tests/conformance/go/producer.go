// A producer on lib/pq: DATABASE_URL=... QUEUE=... producer COUNT [PREFIX]
// Plain inserts, in the caller's own transactions.
package main

import (
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"log"
	"os"
	"strconv"

	"github.com/lib/pq"
)

var queue, prefix = "default", "go-"

// enqueue says how many were added: none if the key is taken.
func enqueue(tx *sql.Tx, number int) (int64, error) {
	payload, _ := json.Marshal(map[string]int{"number": number})
	result, err := tx.Exec(
		`insert into pgwake.jobs (queue, kind, payload, metadata, unique_key)
		values ($1, 'conformance.echo', $2, $3, $4) on conflict do nothing`,
		queue, payload, `{"from": "go"}`, prefix+strconv.Itoa(number))
	if err != nil {
		return 0, err
	}
	return result.RowsAffected()
}

func produce(database *sql.DB, first, end int, commit bool) int64 {
	tx, err := database.Begin()
	if err != nil {
		log.Fatal(err)
	}
	defer tx.Rollback() // if it is not committed
	added := int64(0)
	for number := first; number < end; number++ {
		count, err := enqueue(tx, number)
		if err != nil {
			log.Fatal(err)
		}
		added += count
	}
	if !commit {
		return 0
	}
	if err := tx.Commit(); err != nil {
		log.Fatal(err)
	}
	return added
}

func main() {
	count, err := strconv.Atoi(os.Args[1])
	if err != nil {
		log.Fatal(err)
	}
	if len(os.Args) > 2 {
		prefix = os.Args[2]
	}
	if name := os.Getenv("QUEUE"); name != "" {
		queue = name
	}
	database, err := sql.Open("postgres", os.Getenv("DATABASE_URL"))
	if err != nil {
		log.Fatal(err)
	}
	inserted := int64(0)
	for first := 0; first < count; first += 10 {
		end := first + 10
		if end > count {
			end = count
		}
		inserted += produce(database, first, end, true)
	}
	produce(database, count, count+10, false) // none of these
	_, err = database.Exec("insert into pgwake.jobs (queue, kind, priority) values ($1, 'bad', 1000)", queue)
	var refused *pq.Error
	if errors.As(err, &refused) {
		fmt.Println("refused", refused.Code)
	}
	fmt.Println("inserted", inserted)
}
