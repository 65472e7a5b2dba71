package refserver

import (
	"encoding/json"
	"net/http"
	"strconv"
)

// failure is an HTTP answer that is not 200.
type failure struct {
	status     int
	code       string
	message    string
	retryAfter int // seconds; 0: no header
}

func (f *failure) write(w http.ResponseWriter) {
	if f.retryAfter > 0 {
		w.Header().Set("Retry-After", strconv.Itoa(f.retryAfter))
	}
	writeJSON(w, f.status, struct {
		ErrorCode string `json:"errorCode"`
		Message   string `json:"message"`
	}{f.code, f.message})
}

func writeJSON(w http.ResponseWriter, status int, v any) {
	b, err := json.Marshal(v)
	if err != nil {
		http.Error(w, "", http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Cache-Control", "no-store")
	w.WriteHeader(status)
	_, _ = w.Write(append(b, '\n')) // the client is gone if this fails; nothing to tell it
}
