//go:build race

package simulation

// sizeOfFloods divides the big streams where the race detector makes each byte dear.
const (
	sizeOfFloods = 8
	// sizeOfPatience multiplies a limit that is short for it.
	sizeOfPatience = 5
)
