package main

import (
	"io"
	"log/slog"
	"strings"
)

// newLogger makes the logger that --log-format and --log-level ask for.
func newLogger(w io.Writer, format, level string) (*slog.Logger, error) {
	var l slog.Level
	if err := l.UnmarshalText([]byte(strings.ToUpper(level))); err != nil {
		return nil, usagef("--log-level: %q is none of debug, info, warn, error", level)
	}
	options := &slog.HandlerOptions{Level: l}
	switch format {
	case "text":
		return slog.New(slog.NewTextHandler(w, options)), nil
	case "json":
		return slog.New(slog.NewJSONHandler(w, options)), nil
	}
	return nil, usagef("--log-format: %q is neither text nor json", format)
}
