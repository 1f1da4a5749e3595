// What consumer.go does with a job of each kind: yours go here. A handler's error fails the attempt; a failure says
// when to try again (an interval), or never.
package main

import (
	"encoding/json"
	"fmt"
	"time"
)

type failure struct {
	message string
	retryIn *string // nil: by the policy
	isFinal bool
}

func (f failure) Error() string { return f.message }

func echo(j job) (any, error) {
	var payload struct {
		Number  int
		Seconds float64
	}
	if err := json.Unmarshal(j.payload, &payload); err != nil {
		return nil, err
	}
	time.Sleep(time.Duration(payload.Seconds * float64(time.Second)))
	return map[string]any{"number": payload.Number, "by": "go"}, nil
}

func failOnce(j job) (any, error) {
	if *j.attempt == 1 {
		atOnce := "0 seconds"
		return nil, failure{message: "not yet", retryIn: &atOnce}
	}
	return echo(j)
}

func fail(j job) (any, error) {
	if _, err := echo(j); err != nil {
		return nil, err
	}
	return nil, failure{message: "never", isFinal: true}
}

var handlers = map[string]func(job) (any, error){
	"conformance.echo": echo, "conformance.fail_once": failOnce, "conformance.fail": fail,
}

// handle returns the result, as JSON.
func handle(j job) ([]byte, error) {
	handler, isKnown := handlers[*j.kind]
	if !isKnown {
		return nil, fmt.Errorf("unknown kind %s", *j.kind)
	}
	result, err := handler(j)
	if err != nil {
		return nil, err
	}
	return json.Marshal(result)
}
