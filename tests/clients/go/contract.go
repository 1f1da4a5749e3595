// Runs a contract through lib/pq: DATABASE_URL=... contract FILE
// The format is in ../README.md. Exit code 0: each step went as expected; 1: one did not.
package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log"
	"os"
	"regexp"
	"strings"

	"github.com/lib/pq"
)

type session struct {
	*sql.Conn
	heard []string
}

var (
	ctx       = context.Background()
	sessions  = map[string]*session{}
	values    = map[string]sql.NullString{}
	name      = regexp.MustCompile(`\{\w+\}`)
	directive = regexp.MustCompile(`^-- (in|expect|error|keep|hears): (.*)$`)
)

func open() *session {
	connector, err := pq.NewConnector(os.Getenv("DATABASE_URL"))
	if err != nil {
		log.Fatal(err)
	}
	opened := &session{}
	database := sql.OpenDB(pq.ConnectorWithNotificationHandler(connector, func(note *pq.Notification) {
		opened.heard = append(opened.heard, note.Channel+" "+note.Extra)
	}))
	if opened.Conn, err = database.Conn(ctx); err != nil {
		log.Fatal(err)
	}
	return opened
}

// answer runs a statement; its first value (or what stands for it), and SQLSTATE.
func (s *session) answer(statement string, parameters []any) (sql.NullString, string) {
	var answer sql.NullString
	err := s.QueryRowContext(ctx, statement, parameters...).Scan(&answer)
	var refused *pq.Error
	if errors.As(err, &refused) {
		return answer, string(refused.Code)
	} else if err == sql.ErrNoRows {
		return sql.NullString{String: "(no row)", Valid: true}, ""
	} else if err != nil {
		log.Fatal(err)
	}
	return answer, ""
}

func run(step string) error {
	lines := strings.Split(step, "\n")
	wanted := map[string]string{"in": "a"}
	text := ""
	for _, line := range lines[1:] {
		if found := directive.FindStringSubmatch(line); found != nil {
			wanted[found[1]] = found[2]
		} else if !strings.HasPrefix(line, "--") {
			text += line + "\n"
		}
	}
	if sessions[wanted["in"]] == nil {
		sessions[wanted["in"]] = open()
	}
	in := sessions[wanted["in"]]
	var parameters []any
	statement := name.ReplaceAllStringFunc(text, func(found string) string {
		parameters = append(parameters, values[strings.Trim(found, "{}")])
		return fmt.Sprintf("$%d", len(parameters))
	})

	answer, code := in.answer(statement, parameters)
	if wanted["keep"] != "" && code == "" {
		kept := strings.Split(answer.String, "\n")
		for i, name := range strings.Fields(wanted["keep"]) {
			values[name] = sql.NullString{String: kept[i], Valid: answer.Valid}
		}
	}
	got := map[string]string{"error": code, "expect": answer.String, "hears": strings.Join(in.heard, ", ")}
	if !answer.Valid {
		got["expect"] = "(null)"
	} else if answer.String == "" {
		got["expect"] = "(empty)"
	}
	if got["hears"] == "" {
		got["hears"] = "(nothing)"
	}
	if wanted["hears"] != "" {
		in.heard = nil
	}
	for _, word := range []string{"error", "expect", "hears"} {
		expected := name.ReplaceAllStringFunc(wanted[word], func(found string) string {
			return values[strings.Trim(found, "{}")].String
		})
		if (expected != "" || word == "error") && got[word] != expected {
			return fmt.Errorf("step %q: expected %s %s, got %s", lines[0], word, expected, got[word])
		}
	}
	return nil
}

func main() {
	script, err := os.ReadFile(os.Args[1])
	if err != nil {
		log.Fatal(err)
	}
	steps := strings.Split(string(script), "\n-- step: ")[1:]
	for _, step := range steps {
		if difference := run(step); difference != nil {
			fmt.Println(difference)
			os.Exit(1)
		}
	}
	fmt.Println(len(steps), "steps")
}
