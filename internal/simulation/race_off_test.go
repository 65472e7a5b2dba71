//go:build !race

package simulation

const (
	sizeOfFloods   = 1
	sizeOfPatience = 1
)
