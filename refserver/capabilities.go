package refserver

import "net/http"

// serveCapabilities answers discovery: `deviceExecutor` is false or an object.
func (s *Server) serveCapabilities(w http.ResponseWriter, _ *http.Request) {
	if s.cfg.Disabled {
		writeJSON(w, http.StatusOK, map[string]any{"deviceExecutor": false})
		return
	}
	writeJSON(w, http.StatusOK, map[string]any{"deviceExecutor": map[string]any{
		"enabled":              true,
		"protocolVersion":      s.cfg.ProtocolVersion,
		"maxInflightPerDevice": s.cfg.MaxInflight,
		"wsPath":               s.cfg.WSPath,
		"management":           true,
	}})
}
