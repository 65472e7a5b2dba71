package main

import (
	"strings"

	"github.com/sema-agent/device-executor/enroll"
)

// explain turns an error into what a person reads: what happened, and on the
// next line what to do about it.
func explain(err error) string {
	text := strings.TrimRight(err.Error(), "\n")
	if advice := enroll.Advice(err); advice != "" {
		text += "\n" + advice
	}
	return text
}
